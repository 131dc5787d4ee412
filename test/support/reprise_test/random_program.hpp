#pragma once
// Random training steps, drawn from what loops do: forward ops, writes in place and through views,
// random numbers, host branches; and from what no loop should do (`wild`): tensors that grow,
// switches in the middle of a step, raw pointers, aliases, storages without bytes.
//
//   World eager(seed), ours(seed);
//   const Script script = random_script(rng, Draw::wild);
//   eager.step(script);                         // and `ours` inside a budget: everything() must be equal
//
// A step is the same function of the seed and the script each time.

#include <torch/torch.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <reprise_test/eager.hpp>
#include <reprise_test/random_graphs.hpp>

namespace reprise::testing {

using namespace tensors;

enum Kind : std::size_t {
  add,
  mul,
  mm,
  tanh_op,
  relu_in_place,
  exp_in_place,
  view_write,
  transposed,
  strided,
  dropout,
  noise,
  norm,
  split,
  layer_norm,
  cat,
  softmax,
  branch,
  host_fill,
  detached,
  forget,
  keep,
  reread,
  cumulative,
  shared_write,
  tame_kinds,
  // What no loop should do, and some do.
  grow_kept = tame_kinds,
  grow_made,
  shrink,
  grow_out,
  default_dtype,
  threads,
  flush_denormal,
  deterministic,
  overlap,
  scatter,
  packed,
  lazy_clone,
  alias_read,
  alias_write,
  empty_storage,
  small_loss,
  empty_operand,
  swap_data,
  pointer_read,
  all_kinds
};

inline const char* const kind_names[] = {"add",
                                         "mul",
                                         "mm",
                                         "tanh",
                                         "relu_",
                                         "exp_",
                                         "view_write",
                                         "transposed",
                                         "strided",
                                         "dropout",
                                         "noise",
                                         "norm",
                                         "split",
                                         "layer_norm",
                                         "cat",
                                         "softmax",
                                         "branch",
                                         "host_fill",
                                         "detached",
                                         "forget",
                                         "keep",
                                         "reread",
                                         "cumulative",
                                         "shared_write",
                                         "grow_kept",
                                         "grow_made",
                                         "shrink",
                                         "grow_out",
                                         "default_dtype",
                                         "threads",
                                         "flush_denormal",
                                         "deterministic",
                                         "overlap",
                                         "scatter",
                                         "packed",
                                         "lazy_clone",
                                         "alias_read",
                                         "alias_write",
                                         "empty_storage",
                                         "small_loss",
                                         "empty_operand",
                                         "swap_data",
                                         "pointer_read"};

struct Action {
  Kind kind{};
  std::size_t a = 0, b = 0;
};

/// What a program is made of; whether it is the same in every step is a matter of luck.
struct Script {
  std::vector<Action> actions{};
  bool twice = false, penalty = false, update_between = false, accumulate = false;
};

enum class Draw : std::uint8_t { tame, wild };

/// Not drawn, because guided steps do not hold for them yet: a storage whose block the host
/// exchanges behind the dispatcher. REPRISE_RANDOM_WITHOUT=threads,packed leaves out more.
inline bool is_drawn(Kind kind) {
  static const std::string without = [] {
    const char* names = std::getenv("REPRISE_RANDOM_WITHOUT");
    return std::string(",empty_storage,") + (names != nullptr ? names : "") + ",";
  }();
  return without.find("," + std::string(kind_names[kind]) + ",") == std::string::npos;
}

inline Kind random_kind(Rng& rng, Draw draw) {
  if (draw == Draw::tame) return static_cast<Kind>(rng.below(tame_kinds));
  for (;;) {
    const auto kind = static_cast<Kind>(
        rng.chance(0.4) ? tame_kinds + rng.below(all_kinds - tame_kinds) : rng.below(tame_kinds));
    if (is_drawn(kind)) return kind;
  }
}

inline Script random_script(Rng& rng, Draw draw = Draw::tame) {
  Script script;
  script.actions.resize(4 + rng.below(12));
  for (std::size_t i = 0; i < script.actions.size(); ++i) {
    script.actions[i] = {random_kind(rng, draw), rng.below(i + 1), rng.below(i + 1)};
    if (rng.chance(0.7)) script.actions[i].a = i;
  }
  script.twice = rng.chance(0.2);
  script.penalty = rng.chance(0.15);
  script.update_between = rng.chance(0.3);
  script.accumulate = rng.chance(0.2);
  return script;
}

/// The switches that a wild action turns, as they were: autograd may refuse a step in the middle of
/// one.
struct ResetSwitches {
  int threads = at::get_num_threads();
  ~ResetSwitches() {
    torch::set_default_dtype(caffe2::TypeMeta::Make<float>());
    if (at::get_num_threads() != threads) at::set_num_threads(threads);
    at::globalContext().setFlushDenormal(false);
    at::globalContext().setDeterministicAlgorithms(false, false);
  }
};

/// What lives from step to step.
struct World {
  std::int64_t rows = 4;  ///< of every activation; 8 columns
  std::vector<torch::Tensor> parameters{}, buffers{}, kept{};
  torch::Tensor input{}, state{}, log{}, alias{};
  std::vector<double> host{};

  explicit World(std::uint64_t seed, std::int64_t rows_of_all = 4) : rows(rows_of_all) {
    torch::manual_seed(seed);
    parameters = {(torch::randn({8, 8}) * 0.3).requires_grad_(), torch::randn({8}).requires_grad_(),
                  torch::randn({8}).requires_grad_()};
    buffers = {torch::zeros({8}), torch::ones({8})};
    input = torch::randn({rows, 8});
    state = torch::randn({rows, 8});
    log = torch::zeros({1, 8});
    alias = torch::from_blob(input.data_ptr(), {rows, 8});  // of an input that every step reads
  }

  torch::Tensor act(const Action& action, std::vector<torch::Tensor>& pool) {
    const torch::Tensor a = pool[action.a], b = pool[action.b];
    const auto& p = parameters;
    switch (action.kind) {
      case add: return a + b;
      case mul: return a * b * 0.5;
      case mm: return torch::mm(a, p[0]);
      case tanh_op: return torch::tanh(a);
      case relu_in_place: return (a + b).relu_();
      case exp_in_place: return (a * 0.1).exp_();
      case view_write: {
        torch::Tensor h = (a + b).contiguous();
        h.narrow(0, 1, 2).mul_(0.25);
        h.view({-1}).narrow(0, 3, 5).add_(1);
        return h;
      }
      case transposed: return a.t().contiguous().t() + b.reshape({8, rows}).t().reshape({rows, 8});
      case strided: {
        const torch::Tensor h = (a * 2).contiguous();
        return h.as_strided({rows, 8}, {8, 1}) + h.as_strided({rows, 8}, {1, rows}) * 0.5;
      }
      case dropout: return torch::dropout(a, 0.4, true);
      case noise: return a * torch::rand_like(b);
      case norm:
        return torch::batch_norm(a, p[1], p[2], buffers[0], buffers[1], true, 0.1, 1e-5, false);
      case split: {
        const auto parts = torch::unsafe_split(a * 1.5, 4, 1);
        return torch::cat({parts[1], parts[0] * 2}, 1);
      }
      case layer_norm: return torch::layer_norm(a, {8}, p[1], p[2]);
      case cat: return torch::cat({a.narrow(1, 0, 4), b.narrow(1, 2, 4)}, 1);
      case softmax: return torch::softmax(a, 1) + b;
      case branch: {
        host.push_back(a.sum().item<double>());
        return host.back() > 0 ? torch::sigmoid(a) : a * a.mean();
      }
      case host_fill: {
        torch::Tensor filled = torch::empty({rows, 8});
        float* to = filled.data_ptr<float>();
        for (std::int64_t i = 0; i < rows * 8; ++i) to[i] = static_cast<float>(i % 5) * 0.3f;
        torch::Tensor h = a * filled;
        // through the pointer that was kept
        for (std::int64_t i = 0; i < rows * 8; ++i) to[i] = 0.7f;
        return h + filled;
      }
      case detached: return a.detach() * 0.5 + b;
      case forget: pool[action.b] = a; return a + 0;
      case keep: kept.push_back(a.detach()); return a * 1.25;
      case reread: return kept.empty() ? a.clone() : a + kept[action.b % kept.size()] * 0.1;
      case cumulative: return torch::cumsum(a, 1) * 0.2;
      case shared_write: {
        const torch::Tensor whole = torch::cat({a, b}, 0);
        torch::Tensor top = whole.narrow(0, 0, rows), bottom = whole.narrow(0, rows, rows);
        top.mul_(bottom.detach());
        return top + bottom;
      }
      default: return act_wildly(action, a, b);
    }
  }

  torch::Tensor act_wildly(const Action& action, const torch::Tensor& a, const torch::Tensor& b) {
    const auto plain = [](const torch::Tensor& t) { return t.detach().clone(); };
    switch (action.kind) {
      case grow_kept: {
        const torch::NoGradGuard no_grad;
        const std::int64_t more = 1 + static_cast<std::int64_t>(host.size() % 3);
        log.resize_({more * rows, 8});
        for (std::int64_t i = 0; i < more; ++i) log.narrow(0, i * rows, rows).copy_(a.detach());
        return a + log.narrow(0, (more - 1) * rows, rows) * 0.1;
      }
      case grow_made: {
        torch::Tensor t = plain(a);
        const torch::Tensor before = t * 3;
        t.resize_({2 * rows, 8});
        t.narrow(0, rows, rows).fill_(0.5);
        return a * t.mean() + before * 0.1;
      }
      case shrink: {
        torch::Tensor t = plain(a);
        t.resize_({2, 8});
        const torch::Tensor small = t * 3;
        t.resize_({2 * rows, 8});
        t.narrow(0, 2, 2 * rows - 2).zero_();
        return a + small.sum() * 0.01 + t.sum() * 0.01;
      }
      case grow_out: {
        torch::Tensor product = torch::empty({0}), sum = torch::empty({0});
        const torch::NoGradGuard no_grad;
        torch::mm_out(product, plain(a).t(), plain(b));
        torch::add_out(sum, product, product.t());
        const torch::Tensor factor = torch::tanh(sum);
        return torch::mm(a, factor);
      }
      case default_dtype: {
        torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
        const torch::Tensor half = torch::full({rows, 8}, 0.3) * torch::rand({rows, 8});
        torch::set_default_dtype(caffe2::TypeMeta::Make<float>());
        return a * half.to(torch::kFloat);
      }
      case threads: {
        const int before = at::get_num_threads();
        at::set_num_threads(1 + static_cast<int>(action.b % 3));
        const torch::Tensor h = torch::mm(a, parameters[0]).cumsum(0) * 0.1 + a.sum() * 0.001;
        at::set_num_threads(before);
        return h;
      }
      case flush_denormal: {
        at::globalContext().setFlushDenormal(action.b % 2 == 0);
        const torch::Tensor tiny = a * 1e-39;
        at::globalContext().setFlushDenormal(false);
        return a + tiny * 1e38;
      }
      case deterministic: {
        at::globalContext().setDeterministicAlgorithms(true, true);
        const torch::Tensor h = torch::empty({rows, 8}).isnan().to(torch::kFloat) +
                                a.index_add(0, torch::zeros({1}, torch::kLong), b.narrow(0, 0, 1));
        at::globalContext().setDeterministicAlgorithms(false, false);
        return h;
      }
      case overlap: {
        torch::Tensor t = (a * 0.5).contiguous();
        t.view({-1}).as_strided({rows * 4, 4}, {2, 1}).narrow(0, 0, 1).mul_(0.5);
        const torch::Tensor windows = t.view({-1}).unfold(0, 8, 4);
        t.narrow(0, 0, 1).add_(1);
        return a + windows.sum() * 0.01 + t;
      }
      case scatter: {
        torch::Tensor t = a.detach().clone();
        const torch::Tensor rows_again = torch::zeros({3}, torch::kLong);
        t.index_put_({rows_again}, b.detach().narrow(0, 0, 3), true);
        t.scatter_add_(0, torch::zeros({2, 8}, torch::kLong), b.detach().narrow(0, 0, 2));
        t.index_put_({rows_again.narrow(0, 0, 1) + 1}, torch::tensor(0.25f));
        return a + t;
      }
      case packed: {
        const torch::Tensor sequence = a.narrow(0, 0, 4).reshape({2, 2, 8});
        const torch::Tensor lengths = (torch::ones({2}, torch::kLong) + torch::arange(1, -1, -1));
        const auto [data, sizes] = torch::_pack_padded_sequence(sequence, lengths, true);
        const auto [again, found] =
            torch::_pad_packed_sequence(torch::tanh(data), sizes, true, 0.0, 2);
        host.push_back(found.sum().item<double>());
        return a + again.sum() * 0.1;
      }
      case lazy_clone: {
        torch::Tensor t = at::_lazy_clone(a.detach());
        if (action.b % 2 == 0) t.mul_(0.5);
        return a + t * 0.25;
      }
      case alias_read: return a + alias * 0.1;
      case alias_write: {
        const torch::Tensor h = a * input;
        const torch::NoGradGuard no_grad;
        alias.mul_(0.9);
        return h.detach() + b;
      }
      case empty_storage: {
        torch::Tensor t = plain(a);
        const torch::Tensor h = t * 2;
        const auto bytes = t.nbytes();
        t.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(at::getCPUAllocator()->allocate(0));
        t.storage().unsafeGetStorageImpl()->set_nbytes(0);
        t.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
            at::getCPUAllocator()->allocate(bytes));
        t.storage().unsafeGetStorageImpl()->set_nbytes(bytes);
        t.copy_(b.detach());
        return a + h + t;
      }
      case small_loss: {
        const torch::Tensor loss =
            torch::mse_loss(a, b.detach()) + torch::smooth_l1_loss(a, b.detach());
        if (action.b % 2 == 0) host.push_back(loss.item<double>());
        return a + loss * 0.1;
      }
      case empty_operand: return torch::cat({torch::empty({0}), a}, 0);
      case swap_data: {
        torch::Tensor t = plain(a);
        const torch::Tensor h = t * 2;
        t.set_data(plain(b));
        return a + h + t * 0.5;
      }
      case pointer_read: {
        const float* from = input.const_data_ptr<float>();
        host.push_back(from[3]);
        return a * from[5];
      }
      default: break;
    }
    return a;
  }

  void update() {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& p : parameters)
      if (p.grad().defined()) p.sub_(p.grad().clamp(-1, 1) * 0.05);
  }

  void step(const Script& script) {
    kept.clear();
    if (!script.accumulate)
      for (torch::Tensor& p : parameters) p.mutable_grad() = torch::Tensor();
    std::vector<torch::Tensor> pool{(input + state) * parameters[1]};
    for (const Action& action : script.actions) pool.push_back(act(action, pool));
    torch::Tensor loss =
        torch::tanh(pool.back()).pow(2).mean() + torch::tanh(pool[pool.size() / 2]).sum() * 0.01;
    if (script.penalty) {
      const auto grads = torch::autograd::grad({loss}, {parameters[1]}, {}, true, true, true);
      if (grads[0].defined()) loss = loss + grads[0].pow(2).sum();
    }
    loss.backward({}, script.twice);
    torch::Tensor out = pool.back().detach();
    if (script.twice) loss.backward();
    if (script.update_between) update();
    state = torch::tanh(out);  // read after the update
    update();
    host.push_back(loss.item<double>());
  }

  [[nodiscard]] std::vector<torch::Tensor> everything() const {
    std::vector<torch::Tensor> all = parameters;
    for (const torch::Tensor& p : parameters) all.push_back(p.grad());
    all.insert(all.end(), buffers.begin(), buffers.end());
    all.insert(all.end(), kept.begin(), kept.end());
    all.push_back(state);
    all.push_back(log);
    all.push_back(torch::tensor(host, torch::kDouble));
    all.push_back(generator_state());
    return all;
  }
};

}  // namespace reprise::testing
