"""Make the pages of the site from what was kept."""
