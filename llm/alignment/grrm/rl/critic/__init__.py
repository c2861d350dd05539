"""The critic of PPO: values of the policy's states, and the trainer that fits them beside the policy."""
