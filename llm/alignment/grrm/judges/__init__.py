"""Judge implementations. Pure Python until a model is loaded behind `TextGenerator`."""
