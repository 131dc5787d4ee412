#pragma once
// A DispatchHook sees every op that LibTorch runs below autograd on this thread: forward, backward
// and optimizer.
//
// ```cpp
// struct Printer : DispatchHook {
//   void on_op(const c10::OperatorHandle& op, c10::DispatchKeySet below,
//              torch::jit::Stack& stack) override {
//     std::cout << op.schema().name() << '\n';
//     op.redispatchBoxed(below, &stack);
//   }
// } printer;
// printer.switch_on();
// ```
//
// It is a boxed fallback on a dispatch key that LibTorch leaves free (Fake). The fallback is
// registered once per process and switched on for one thread at a time. Autograd and autocast are
// above that key, so the hook sees the ops that run. It does not see what an op calls inside
// itself.

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <reprise/base/error.hpp>
#include <reprise/base/one_per_process.hpp>

namespace reprise::tensors {

class DispatchHook {
 public:
  DispatchHook() = default;
  virtual ~DispatchHook() {
    switch_off();
    on_other_threads_->store(nullptr);
  }
  DispatchHook(const DispatchHook&) = delete;
  DispatchHook& operator=(const DispatchHook&) = delete;

  /// Must run the op, by redispatching it with `below`. The hook is off meanwhile.
  virtual void on_op(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                     torch::jit::Stack& stack) = 0;

  /// Throws Errc::bad_argument if another hook is on.
  static void refuse_inside_another() {
    if (current() != nullptr)
      throw Error(Errc::bad_argument,
                  "a step is already being recorded on this thread: a MemoryBudget's step, "
                  "capture() or TrainStep cannot be used inside another one");
  }
  /// The same; also throws Errc::capture_failed if another library uses the key.
  void switch_on() {
    refuse_inside_another();
    register_fallback();
    here().own = this;
    on_other_threads_->store(this);
    key_.emplace(key);
  }

  /// Switches on above the hook that is on, if there is one. That hook sees an op when this one
  /// passes the op to below().
  void switch_on_above() {
    register_fallback();
    below_ = current();
    own_below_ = std::exchange(here().own, this);
    key_.emplace(key);
  }

  void switch_off() {
    if (here().own != this) return;
    on_other_threads_->store(nullptr);
    key_.reset();
    below_ = nullptr;
    here().own = std::exchange(own_below_, nullptr);
  }

  /// Whether it is on for this thread, perhaps below other hooks.
  [[nodiscard]] bool is_on() const {
    for (const DispatchHook* hook = current(); hook != nullptr; hook = hook->below_)
      if (hook == this) return true;
    return false;
  }
  [[nodiscard]] DispatchHook* below() const { return below_; }

  /// Runs the op through `hook`; without a hook, only runs the op.
  static void run_in(DispatchHook* hook, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                     torch::jit::Stack& stack) {
    if (hook != nullptr) hook->on_op(op, keys, stack);
    else op.redispatchBoxed(keys, &stack);
  }

  /// The hook that is on; null if there is none.
  [[nodiscard]] static DispatchHook* current() {
    const ThisThread& thread = here();
    if (thread.own != nullptr || !thread.joined) return thread.own;
    return thread.joined->load();
  }

  /// The hook sees the ops of another thread while this object is in scope there and the hook is
  /// on.
  class Joined {
   public:
    explicit Joined(const DispatchHook& hook) {
      if (current() == &hook) return;
      if (current() != nullptr)
        throw Error(Errc::bad_argument, "this thread is recorded by another step already");
      here().joined = hook.on_other_threads_;
      key_.emplace(key);
    }
    ~Joined() {
      if (key_) here().joined.reset();
    }
    Joined(const Joined&) = delete;
    Joined& operator=(const Joined&) = delete;

   private:
    std::optional<c10::impl::IncludeDispatchKeyGuard> key_;
  };

  /// Keys that a program excludes when it calls recorded ops: everything from the hook's key
  /// upwards.
  [[nodiscard]] static c10::DispatchKeySet above() {
    return c10::DispatchKeySet(c10::DispatchKeySet::FULL) -
           c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key);
  }

 private:
  static constexpr c10::DispatchKey key = c10::DispatchKey::Fake;

  // outlives the hook, so that a thread that has joined it never uses a dead hook
  using Shared = std::atomic<DispatchHook*>;
  struct ThisThread {
    DispatchHook* own = nullptr;
    std::shared_ptr<Shared> joined{};
  };
  REPRISE_ONE_PER_PROCESS static ThisThread& here() {
    thread_local ThisThread thread;
    return thread;
  }

  static void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                       torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard once(key);
    const c10::DispatchKeySet below =
        keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key);
    // current() may be null: autograd has passed the key on from a thread that has a hook
    run_in(current(), op, below, *stack);
  }

  struct Registration {
    std::mutex guard{};
    bool done = false;
  };
  REPRISE_ONE_PER_PROCESS static Registration& registration() {
    static auto& once = *new Registration;
    return once;
  }

  // Shared objects that include this header, and all threads, share the flag. The first caller
  // registers, for good.
  static void register_fallback() {
    const std::lock_guard lock(registration().guard);
    if (registration().done) return;
    auto& dispatcher = c10::Dispatcher::singleton();
    if (dispatcher.hasBackendFallbackForDispatchKey(key))
      throw Error(Errc::capture_failed,
                  "another library has taken the dispatch key that Reprise records on (Fake): fake "
                  "tensors and Reprise cannot be used in "
                  "one process");
    static auto& handle = *new c10::RegistrationHandleRAII(dispatcher.registerFallback(
        key, c10::KernelFunction::makeFromBoxedFunction<&DispatchHook::fallback>(), "reprise"));
    static_cast<void>(handle);
    registration().done = true;
  }

  std::optional<c10::impl::IncludeDispatchKeyGuard> key_;
  DispatchHook* below_ = nullptr;
  // the same, except for another thread's step that this thread has joined
  DispatchHook* own_below_ = nullptr;
  std::shared_ptr<Shared> on_other_threads_ = std::make_shared<Shared>(nullptr);
};

}  // namespace reprise::tensors
