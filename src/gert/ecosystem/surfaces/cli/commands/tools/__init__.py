"""Commands about what runs call: tools, extensions, inputs, models, skills and runners."""
