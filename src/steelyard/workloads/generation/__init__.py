"""Text generation: prompts in, tokens out, one request a call, with the time of every token."""
