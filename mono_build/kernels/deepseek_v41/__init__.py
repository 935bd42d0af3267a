"""DeepSeek-V4.1's launches that are this project's own."""
