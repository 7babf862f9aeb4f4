"""What many envs need between their simulator and the agent: elements, encodings, conversions."""
