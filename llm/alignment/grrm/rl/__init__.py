"""Group-relative reinforcement learning on PaddleNLP's Trainer."""
