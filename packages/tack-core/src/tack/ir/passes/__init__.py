"""The passes that specialize a template: each a function from kernel to kernel."""
