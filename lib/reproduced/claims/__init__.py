"""Claims: declared in a file, measured by a chapter, judged by the rule that was declared, shown in words."""
