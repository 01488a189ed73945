"""Execute chapters and keep what they say."""
