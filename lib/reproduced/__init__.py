"""The book's machinery: claims and their verdicts, five papers, the build, the pages."""
