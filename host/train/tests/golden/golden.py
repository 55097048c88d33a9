"""Writes golden.json: what advantages, losses, optimizer and schedules give in PyTorch.

Run with PyTorch 2.x: python golden.py > golden.json
Losses and advantages are in float64 with gradients by autograd; AdamW is in float32.
"""

import json
import math
import sys

import torch

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)
EPSILON = 1e-6


def numbers(tensor):
    return tensor.detach().tolist()


# Advantages. A group is a list of episodes, an episode a list of returns.
def statistics(values):
    if values.numel() < 2:
        return torch.tensor(0.0), torch.tensor(1.0)
    return values.mean(), values.std(unbiased=True)


def advantages(estimator, groups):
    everything = torch.tensor([r for group in groups for episode in group for r in episode])
    out = []
    for group in groups:
        pool = torch.tensor([r for episode in group for r in episode])
        row = []
        for at, episode in enumerate(group):
            returns = torch.tensor(episode)
            if estimator == "grpo":
                mean, deviation = statistics(pool)
                row.append(numbers((returns - mean) / (deviation + EPSILON)))
            elif estimator == "dr-grpo":
                row.append(numbers(returns - statistics(pool)[0]))
            elif estimator == "batch":
                mean, deviation = statistics(everything)
                row.append(numbers((returns - mean) / (deviation + EPSILON)))
            elif estimator == "rloo":
                others = [r for other, e in enumerate(group) if other != at for r in e]
                baseline = torch.tensor(others).mean() if others else torch.tensor(0.0)
                row.append(numbers(returns - baseline))
            else:
                row.append(episode)
        out.append(row)
    return out


outcomes = [[[1.0], [0.0], [0.5], [0.25]], [[2.0]], [[0.5], [0.5], [0.5]], [[-1.0], [3.0]]]
by_turn = [[[1.0, 0.5], [0.0, 0.25, 2.0], [1.5]], [[0.75, -0.5]], [[1.0], [2.0, 0.0]]]
advantage_cases = [
    {"estimator": estimator, "groups": groups, "advantages": advantages(estimator, groups)}
    for groups in (outcomes, by_turn)
    for estimator in ("grpo", "dr-grpo", "rloo", "batch", "plain")
]


# Losses: each token is (new, entropy, old, reference, behaviour, advantage, weight).
def kl(estimator, new, reference):
    difference = reference - new
    if estimator == "k1":
        return -difference
    if estimator == "k2":
        return difference.square() / 2
    return difference.clamp(-20, 20).exp() - difference - 1


def policy_loss(policy, new, old, advantage):
    if policy == "reinforce":
        return -advantage * new
    if policy == "likelihood":
        return -new
    low, high, dual = policy
    ratio = (new - old).clamp(-20, 20).exp()
    held = ratio.clamp(1 - low, 1 + high)
    loss = torch.maximum(-advantage * ratio, -advantage * held)
    return torch.where(advantage < 0, torch.minimum(loss, -advantage * dual), loss)


count = 40
# What a model says is in float32.
new = (-3 * torch.rand(count)).float().double()
# Small, large and absurd differences, so that every bound is met from both sides.
steps = torch.cat([
    0.05 * torch.randn(12), 0.6 * torch.randn(14), 3 * torch.randn(12), torch.tensor([25.0, -25.0])
])
old = new - steps
reference = new + torch.cat([0.3 * torch.randn(36), torch.tensor([2.5, -2.5, 22.0, -22.0])])
behaviour = old + 0.5 * torch.randn(count)
advantage = torch.randn(count)
entropy = (2 * torch.rand(count)).float().double()
weight = torch.rand(count) / count
clips = {"ppo": (0.2, 0.2, 3.0), "clip-higher": (0.2, 0.28, 3.0), "tight": (0.05, 0.1, 1.5)}
loss_cases = []
for policy in ("ppo", "clip-higher", "tight", "reinforce", "likelihood"):
    for estimator, beta in ((None, 0.0), ("k1", 0.1), ("k2", 0.1), ("k3", 0.04)):
        for bonus, threshold in ((0.0, None), (0.01, 2.0)):
            a = new.clone().requires_grad_()
            h = entropy.clone().requires_grad_()
            correction = torch.ones(count)
            if threshold is not None:
                correction = (old - behaviour).clamp(-20, 20).exp().clamp(max=threshold)
            loss = correction * policy_loss(clips.get(policy, policy), a, old, advantage)
            if estimator:
                loss = loss + beta * kl(estimator, a, reference)
            loss = (weight * (loss - bonus * h)).sum()
            by_log, by_entropy = torch.autograd.grad(loss, (a, h), allow_unused=True)
            loss_cases.append({
                "policy": policy,
                "clip": clips.get(policy),
                "kl": estimator,
                "beta": beta,
                "bonus": bonus,
                "threshold": threshold,
                "value": loss.item(),
                "log_probability": numbers(by_log),
                "entropy": numbers(by_entropy if by_entropy is not None else torch.zeros(count)),
            })

# AdamW with a rate that changes and gradients clipped by their common norm.
torch.set_default_dtype(torch.float32)
generator = torch.Generator().manual_seed(3)
matrix = torch.nn.Parameter(torch.randn(3, 4, generator=generator))
vector = torch.nn.Parameter(torch.randn(5, generator=generator))
optimizer = torch.optim.AdamW(
    [{"params": [matrix], "weight_decay": 0.1}, {"params": [vector], "weight_decay": 0.0}],
    lr=1.0, betas=(0.9, 0.95), eps=1e-8, foreach=False,
)
adam = {"start": [numbers(matrix.flatten()), numbers(vector)], "most": 1.0, "steps": []}
for step in range(10):
    rate = 0.01 * (1 + step % 3)
    for group in optimizer.param_groups:
        group["lr"] = rate
    scale = 10.0 ** (step % 4 - 2)
    matrix.grad = scale * torch.randn(3, 4, generator=generator)
    vector.grad = scale * torch.randn(5, generator=generator)
    raw = [numbers(matrix.grad.flatten()), numbers(vector.grad)]
    norm = torch.nn.utils.clip_grad_norm_([matrix, vector], adam["most"], foreach=False)
    optimizer.step()
    adam["steps"].append({
        "rate": rate, "gradients": raw, "norm": norm.item(),
        "values": [numbers(matrix.flatten()), numbers(vector)],
    })

# Schedules, as PyTorch's own.
parameter = torch.nn.Parameter(torch.zeros(1))


def rates(make, count):
    optimizer = torch.optim.SGD([parameter], lr=0.3)
    schedule = make(optimizer)
    out = []
    for _ in range(count):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return out


schedules = {
    "cosine": rates(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=9, eta_min=0.03), 10),
    "linear": rates(lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.1, total_iters=9), 12),
    "warm_up": rates(lambda o: torch.optim.lr_scheduler.LinearLR(o, 0.25, 1.0, total_iters=3), 6),
}

json.dump({
    "torch": torch.__version__,
    "advantages": advantage_cases,
    "tokens": {
        "new": numbers(new), "entropy": numbers(entropy), "old": numbers(old),
        "reference": numbers(reference), "behaviour": numbers(behaviour),
        "advantage": numbers(advantage), "weight": numbers(weight),
    },
    "losses": loss_cases,
    "adam": adam,
    "schedules": schedules,
}, sys.stdout)
