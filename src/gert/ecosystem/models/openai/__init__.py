"""OpenAI's Responses and chat completion APIs."""
