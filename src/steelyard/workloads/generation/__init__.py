"""Text generation: prompts in, tokens out, one request per call, with the time of every token."""
