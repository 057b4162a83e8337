"""The model with PyTorch's `nn.LSTM`. `python -m ... with_torch WORKLOAD packed|padded|eager`.

Sentences are tensors before anything is timed; a batch is put together from them when it runs, as a data loader does.
"""

import os
import sys

import torch
from torch.nn.functional import cross_entropy, embedding
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_sequence

from benchmarks.competitors import worker

from . import workload

PADDING = -100  # of tags; what `cross_entropy` leaves out

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
file, form = sys.argv[1:]
sentences, w, H = workload.read(file)
p = {k: torch.from_numpy(v) for k, v in w.items()}
words = [torch.tensor(s[0]) for s in sentences]
tags = [torch.tensor(s[1]) for s in sentences]
lstm = torch.nn.LSTM(p["emb"].shape[1], H)
with torch.no_grad():
    lstm.weight_ih_l0.copy_(p["input"])
    lstm.weight_hh_l0.copy_(p["state"])
    lstm.bias_ih_l0.copy_(p["bias"])
    lstm.bias_hh_l0.zero_()


def head(states, of_tokens):
    logits = torch.addmm(p["out_bias"], states, p["out"].t())
    return cross_entropy(logits, of_tokens, ignore_index=PADDING, reduction="sum").item()


def packed(chosen):
    """Longest first: at each step the sentences that have not ended are the first rows."""
    longest_first = sorted(chosen, key=lambda k: -len(words[k]))
    text = pack_sequence([words[k] for k in longest_first])
    states, _ = lstm(PackedSequence(embedding(text.data, p["emb"]), text.batch_sizes))
    return head(states.data, pack_sequence([tags[k] for k in longest_first]).data)


def padded(chosen):
    """All sentences as long as the longest; what stands behind the end of one has no part in the loss."""
    text = pad_sequence([words[k] for k in chosen])
    states, _ = lstm(embedding(text, p["emb"]))
    mask = pad_sequence([tags[k] for k in chosen], padding_value=PADDING)
    return head(states.flatten(0, 1), mask.flatten())


def eager(chosen):
    """The model as it is written down, one token at a time."""
    total = 0.0
    for k in chosen:
        h = c = torch.zeros(H)
        for word, tag in zip(*sentences[k], strict=True):
            i, f, g, o = (p["bias"] + p["input"] @ p["emb"][word] + p["state"] @ h).split(H)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            logits = torch.addmv(p["out_bias"], p["out"], h)
            total += (torch.logsumexp(logits, 0) - logits[tag]).item()
    return total


def run(chosen):
    with torch.no_grad():
        return {"packed": packed, "padded": padded, "eager": eager}[form](chosen)


worker.serve([workload.size(s) for s in sentences], run, {"version": torch.__version__})
