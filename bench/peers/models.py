"""The models of examples/models for PyTorch in Python: the same layers, shapes, parameter names and losses, made in the same order from the
same seed, with the same data. So weights, inputs, and what eager computes from them are those of the C++ programs, bit for bit, and
bench/peers/run checks that they are. `model.call` says how a block is called.

    model, arguments = make("resnet50", batch=8)
    loss = model(*arguments)
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


def plain(block, *inputs):
    return block(*inputs)


# ── ResNet: examples/models/resnet.hpp ────────────────────────────────────────────────────────────────────────────────────


def conv(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
        self.downsample = None
        if inputs != 4 * width or stride != 1:
            self.downsample = nn.Sequential(conv(inputs, 4 * width, 1, stride), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        out = self.bn1(self.conv1(x)).relu_()
        out = self.bn2(self.conv2(out)).relu_()
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return out.relu_()


class ResNet(nn.Module):
    def __init__(self, depths, width=64, classes=1000):
        super().__init__()
        self.conv1, self.bn1, channels = conv(3, width, 7, 2), nn.BatchNorm2d(width), width
        for i, depth in enumerate(depths):
            stage = nn.Sequential()
            for k in range(depth):
                stage.append(Bottleneck(channels, width << i, 2 if k == 0 and i > 0 else 1))
                channels = 4 * (width << i)
            self.add_module(f"layer{i + 1}", stage)
        self.fc = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.call = plain

    def forward(self, images, labels):
        x = F.max_pool2d(self.bn1(self.conv1(images)).relu_(), 3, 2, 1)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            for block in stage:
                x = self.call(block, x)
        return F.cross_entropy(self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1)), labels)


# ── BERT: examples/models/bert.hpp ────────────────────────────────────────────────────────────────────────────────────────


def split_heads(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


class Tree(nn.Module):
    """A module that only holds others, for their names."""

    def __init__(self, /, **members):  # `self` is the name of one of them
        super().__init__()
        for name, member in members.items():
            self.add_module(name, member)


class BertLayer(nn.Module):
    def __init__(self, width, heads, inner, dropout):
        super().__init__()
        looks = Tree(query=nn.Linear(width, width), key=nn.Linear(width, width), value=nn.Linear(width, width))
        self.attention = Tree(self=looks, output=Tree(dense=nn.Linear(width, width), LayerNorm=nn.LayerNorm(width, 1e-12)))
        self.intermediate = Tree(dense=nn.Linear(width, inner))
        self.output = Tree(dense=nn.Linear(inner, width), LayerNorm=nn.LayerNorm(width, 1e-12))
        self.heads, self.dropout = heads, dropout

    def close(self, half, x, residual):
        return half.LayerNorm(F.dropout(half.dense(x), self.dropout) + residual)

    def forward(self, x, mask):
        looks = self.attention.self
        # As g++ evaluates the arguments in bert.hpp: the order in which gradients are added up follows from it.
        value, key, query = (split_heads(part(x), self.heads) for part in (looks.value, looks.key, looks.query))
        context = F.scaled_dot_product_attention(query, key, value, mask, self.dropout)
        attended = self.close(self.attention.output, context.transpose(1, 2).reshape(x.shape), x)
        return self.close(self.output, F.gelu(self.intermediate.dense(attended)), attended)


class Bert(nn.Module):
    def __init__(self, vocabulary=30522, width=768, layers=12, heads=12, inner=3072, positions=512, dropout=0.1):
        super().__init__()
        embeddings = Tree(word_embeddings=nn.Embedding(vocabulary, width, 0), position_embeddings=nn.Embedding(positions, width),
                          token_type_embeddings=nn.Embedding(2, width), LayerNorm=nn.LayerNorm(width, 1e-12))
        self.bert = Tree(embeddings=embeddings,
                         encoder=Tree(layer=nn.ModuleList(BertLayer(width, heads, inner, dropout) for _ in range(layers))))
        predictions = Tree(transform=Tree(dense=nn.Linear(width, width), LayerNorm=nn.LayerNorm(width, 1e-12)))
        predictions.bias = nn.Parameter(torch.zeros(vocabulary))
        self.cls = Tree(predictions=predictions)
        self.dropout, self.call = dropout, plain
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, nn.Linear):
                    module.weight.normal_(0.0, 0.02)
                    module.bias.zero_()
                elif isinstance(module, nn.Embedding):
                    module.weight.normal_(0.0, 0.02)
            embeddings.word_embeddings.weight[0].zero_()

    def forward(self, tokens, types, present, labels):
        at, head = self.bert.embeddings, self.cls.predictions
        places = at.position_embeddings(torch.arange(tokens.shape[1]).unsqueeze(0))
        kinds, words = at.token_type_embeddings(types), at.word_embeddings(tokens)
        x = F.dropout(at.LayerNorm(words + kinds + places), self.dropout)
        del places, kinds, words
        mask = (1 - present.unsqueeze(1).unsqueeze(2).to(x.dtype)) * torch.finfo(torch.float32).min
        for layer in self.bert.encoder.layer:
            x = self.call(layer, x, mask)
        x = head.transform.LayerNorm(F.gelu(head.transform.dense(x)))
        logits = F.linear(x, at.word_embeddings.weight, head.bias)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1), ignore_index=-100)


# ── GPT-2: examples/models/gpt2.hpp ───────────────────────────────────────────────────────────────────────────────────────


class Conv1D(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(inputs, outputs)), nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class GPT2Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Tree(c_attn=Conv1D(width, 3 * width), c_proj=Conv1D(width, width))
        self.ln_2, self.mlp = nn.LayerNorm(width), Tree(c_fc=Conv1D(width, 4 * width), c_proj=Conv1D(4 * width, width))
        self.heads, self.dropout = heads, dropout

    def forward(self, x):
        value, key, query = (split_heads(part, self.heads) for part in reversed(self.attn.c_attn(self.ln_1(x)).split(x.shape[2], 2)))
        context = F.scaled_dot_product_attention(query, key, value, None, self.dropout, is_causal=True)
        attended = x + F.dropout(self.attn.c_proj(context.transpose(1, 2).reshape(x.shape)), self.dropout)
        inner = F.gelu(self.mlp.c_fc(self.ln_2(attended)), approximate="tanh")
        return attended + F.dropout(self.mlp.c_proj(inner), self.dropout)


class GPT2(nn.Module):
    def __init__(self, vocabulary=50257, width=768, layers=12, heads=12, positions=1024, dropout=0.1):
        super().__init__()
        self.transformer = Tree(wte=nn.Embedding(vocabulary, width), wpe=nn.Embedding(positions, width),
                                h=nn.ModuleList(GPT2Block(width, heads, dropout) for _ in range(layers)), ln_f=nn.LayerNorm(width))
        self.dropout, self.call = dropout, plain
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0.0, 0.02 / math.sqrt(2.0 * layers) if "c_proj" in name else 0.02)

    def forward(self, tokens):
        at = self.transformer
        places, words = at.wpe(torch.arange(tokens.shape[1]).unsqueeze(0)), at.wte(tokens)  # as g++ evaluates a sum
        x = F.dropout(words + places, self.dropout)
        del places, words
        for block in at.h:
            x = self.call(block, x)
        logits = F.linear(at.ln_f(x), at.wte.weight)
        predicted, target = logits[:, :-1], tokens[:, 1:]
        return F.cross_entropy(predicted.reshape(-1, predicted.shape[-1]), target.reshape(-1))


# ── data: examples/models/synthetic.hpp ───────────────────────────────────────────────────────────────────────────────────


def generator(seed, step=0):
    mixed = (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9) % 2**64
    return torch.Generator().manual_seed(mixed >> 32)


def labelled_images(batch, side, classes, random):
    labels = torch.randint(0, classes, (batch,), generator=random)
    angle = torch.linspace(0, 2 * math.pi, side)
    images = torch.randn((batch, 3, side, side), generator=random)
    images += torch.sin((labels % 8 + 1).unsqueeze(1) * angle).view(batch, 1, 1, side)
    images += torch.cos((labels.floor_divide(8) % 8 + 1).unsqueeze(1) * angle).view(batch, 1, side, 1)
    return images, labels


def counting(batch, time, first, vocabulary, random):
    start = torch.randint(0, vocabulary - first, (batch, 1), generator=random)
    stride = torch.randint(1, 4, (batch, 1), generator=random)
    return (start + stride * torch.arange(time)) % (vocabulary - first) + first


def masked_sequences(batch, time, vocabulary, mask_token, random):
    position = torch.arange(time).unsqueeze(0)
    length = torch.randint((time + 1) // 2, time + 1, (batch, 1), generator=random)
    present = position < length
    chosen = ((torch.rand((batch, time), generator=random) < 0.15) | (position == 0)) & present
    truth = counting(batch, time, 1, vocabulary, random)
    tokens = truth.masked_fill(chosen, mask_token).masked_fill(~present, 0)
    types = (position * 2 >= length).long() * present
    return tokens, types, present.long(), truth.masked_fill(~chosen, -100)


depths = {"resnet50": (3, 4, 6, 3), "resnet152": (3, 8, 36, 3)}
names = (*depths, "bert", "gpt2")


def make(name, batch, seed=1, size=0):
    """The full configuration of examples/models/registry.cpp: the module, and what it is called with."""
    torch.manual_seed(seed)
    random = generator(seed)
    if name in depths:
        return ResNet(depths[name]), labelled_images(batch, size or 224, 1000, random)
    if name == "bert":
        return Bert(), masked_sequences(batch, size or 128, 30522, 103, random)
    if name == "gpt2":
        return GPT2(), (counting(batch, size or 256, 0, 50257, random),)
    raise SystemExit(f"no model '{name}'; there are {', '.join(names)}")
