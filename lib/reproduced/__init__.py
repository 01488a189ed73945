"""The book's machinery: claims and their verdicts, studies of five papers, the build, the pages."""
