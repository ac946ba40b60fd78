"""Small stand-ins for timm, transformers and TorchBench, with the parts of them that models are built with."""

from __future__ import annotations

from pathlib import Path

TIMM = """
import torch
__version__ = "9.9"

class Network(torch.nn.Module):
    default_cfg = {"input_size": (3, 8, 8)}
    num_classes = 10

    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4)
        self.drop, self.head = torch.nn.Dropout(0.5), torch.nn.Linear(4, 10)
        torch.nn.init.zeros_(self.norm.weight)

    def forward(self, x):
        return self.head(self.drop(torch.relu(self.norm(self.conv(x))).mean((2, 3))))

def list_models():
    return ["resnet18"]

def create_model(name, pretrained):
    assert not pretrained
    return Network()
"""
TRANSFORMERS = """
import torch
__version__ = "9.9"

class Config:
    is_encoder_decoder, architectures = False, None

    def __init__(self, **sizes):
        usual = {"vocab_size": 50000, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 64, "pad_token_id": 40000}
        self.__dict__ |= {**usual, "head_dim": None, **sizes}

class LlamaConfig(Config):
    pass

class BertConfig(Config):
    def __init__(self, **sizes):
        super().__init__(**{"hidden_size": 32, "num_hidden_layers": 2, **sizes})

class SpeechConfig(Config):
    pass

class Answer(dict):
    pass

class Model(torch.nn.Module):
    main_input_name, config_class = "input_ids", Config

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.table = torch.nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(config.hidden_size, config.hidden_size) for _ in range(config.num_hidden_layers))
        self.head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.head.weight = self.table.weight

    def forward(self, input_ids, labels=None):
        x = self.table(input_ids)
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x))
        logits = self.head(x)
        loss = {} if labels is None else {"loss": torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())}
        return Answer(loss | {"logits": logits})

class LlamaForCausalLM(Model):
    config_class = LlamaConfig

class BertForMaskedLM(Model):
    config_class = BertConfig

class SpeechModel(Model):
    main_input_name = "input_features"

def auto(table):
    return type("Auto", (), {"_model_mapping": table})

CONFIG_MAPPING = {"llama": LlamaConfig, "bert": BertConfig, "speech": SpeechConfig}
AutoModelForMaskedLM = auto({BertConfig: BertForMaskedLM})
AutoModelForCausalLM = auto({LlamaConfig: LlamaForCausalLM, BertConfig: LlamaForCausalLM})
AutoModelForSeq2SeqLM = AutoModelForImageClassification = auto({})
AutoModel = auto({SpeechConfig: SpeechModel})

class AutoConfig:
    @staticmethod
    def from_pretrained(name, local_files_only):
        assert local_files_only
        if name != "mine/model":
            raise OSError("not in the cache")
        found = LlamaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=100, pad_token_id=0)
        found.architectures = ["LlamaForCausalLM"]
        return found
"""


def make(folder: Path) -> Path:
    """Both packages, to be put on the path."""
    for name, text in (("timm", TIMM), ("transformers", TRANSFORMERS)):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(text)
    return folder
