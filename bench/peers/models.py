"""The models of examples/models, for PyTorch in Python: same layers, shapes and losses. `blocks` says how a block is called."""

import torch
from torch import nn
import torch.nn.functional as F


def plain(block, *inputs):
    return block(*inputs)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.downsample = None
        if inputs != 4 * width or stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        out = F.relu_(self.bn1(self.conv1(x)))
        out = F.relu_(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return F.relu_(out)


class ResNet(nn.Module):
    def __init__(self, depths):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.blocks, channels = nn.ModuleList(), 64
        for i, depth in enumerate(depths):
            for k in range(depth):
                self.blocks.append(Bottleneck(channels, 64 << i, 2 if k == 0 and i > 0 else 1))
                channels = 256 << i
        self.fc = nn.Linear(channels, 1000)
        self.call = plain

    def forward(self, images, labels):
        x = F.max_pool2d(F.relu_(self.bn1(self.conv1(images))), 3, 2, 1)
        for block in self.blocks:
            x = self.call(block, x)
        return F.cross_entropy(self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1)), labels)


class BertLayer(nn.Module):
    def __init__(self, width, heads, inner, dropout):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dense, self.norm1 = nn.Linear(width, width), nn.LayerNorm(width, 1e-12)
        self.inner, self.outer, self.norm2 = nn.Linear(width, inner), nn.Linear(inner, width), nn.LayerNorm(width, 1e-12)
        self.heads, self.drop = heads, dropout

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x, mask):
        h = F.scaled_dot_product_attention(self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x)), mask, self.drop)
        h = self.norm1(F.dropout(self.dense(h.transpose(1, 2).reshape(x.shape)), self.drop) + x)
        return self.norm2(F.dropout(self.outer(F.gelu(self.inner(h))), self.drop) + h)


class Bert(nn.Module):
    def __init__(self, vocabulary=30522, width=768, layers=12, heads=12, inner=3072, positions=512, dropout=0.1):
        super().__init__()
        self.words, self.places, self.types = nn.Embedding(vocabulary, width, 0), nn.Embedding(positions, width), nn.Embedding(2, width)
        self.norm, self.drop = nn.LayerNorm(width, 1e-12), dropout
        self.layers = nn.ModuleList(BertLayer(width, heads, inner, dropout) for _ in range(layers))
        self.dense, self.head_norm, self.bias = nn.Linear(width, width), nn.LayerNorm(width, 1e-12), nn.Parameter(torch.zeros(vocabulary))
        self.call = plain

    def forward(self, tokens, labels):
        mask = (1 - torch.ones(tokens.shape[0], 1, 1, tokens.shape[1])) * torch.finfo(torch.float32).min
        x = self.words(tokens) + self.types(torch.zeros_like(tokens)) + self.places(torch.arange(tokens.shape[1])[None])
        x = F.dropout(self.norm(x), self.drop)
        for layer in self.layers:
            x = self.call(layer, x, mask)
        logits = F.linear(self.head_norm(F.gelu(self.dense(x))), self.words.weight, self.bias)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


def make(name, batch, seed=1):
    """The module and its arguments: (module, (inputs, labels))."""
    torch.manual_seed(seed)
    if name in ("resnet50", "resnet152"):
        model = ResNet((3, 4, 6, 3) if name == "resnet50" else (3, 8, 36, 3))
        return model, (torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,)))
    if name == "bert":
        tokens = torch.randint(1, 30522, (batch, 128))
        labels = torch.where(torch.rand(batch, 128) < 0.15, tokens, torch.full_like(tokens, -100))
        return Bert(), (tokens, labels)
    raise SystemExit(f"no model '{name}'; there are resnet50, resnet152, bert")
