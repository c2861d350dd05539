"""The Flask reward server: hosts a judge behind PaddleNLP's reward protocol and the group protocol."""
