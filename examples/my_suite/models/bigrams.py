"""Step 1: a base model. It reads text and answers a score for each pair of neighbouring letters."""

import torch
from openxla.benchmark.models import model_interfaces

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Bigrams(model_interfaces.InferenceModel):
    def __init__(self, batch_size, data_type, width):
        self.batch_size = batch_size
        self.embed = torch.nn.Embedding(128, width).to(DTYPES[data_type])
        self.score = torch.nn.Linear(2 * width, 1).to(DTYPES[data_type])

    def generate_default_inputs(self):
        return "The quick brown fox jumps over a lazy dog"

    def preprocess(self, text):
        return torch.tensor([[ord(char) % 128 for char in text]] * self.batch_size)

    def forward(self, letters):
        seen = self.embed(letters)
        return self.score(torch.cat([seen[:, :-1], seen[:, 1:]], dim=-1))

    def postprocess(self, output):
        return output.squeeze(-1)


def create_model(batch_size=1, data_type="fp32", width=64):
    return Bigrams(batch_size, data_type, width)
