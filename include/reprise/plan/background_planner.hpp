#pragma once
// Plans in a thread of its own, one op sequence after the other, while the steps go on.
//
// ```cpp
// BackgroundPlanner planner;
// auto job = planner.submit([&](std::stop_token stop) {
//   return plan_with("anneal", graph, {.budget = 4_GiB, .cancel = stop}).schedule;
// });
// if (job->done()) use(job->take());          // or job->wait(), which blocks
// job->cancel();                              // nobody wants it any more: never blocks
// auto soon = planner.submit(work, Urgency::soon);     // before the others, also in the middle of one that calls planner.yield()
// ```
//
// The thread starts with the first job and ends with the planner, which cancels what is under way.
// On Linux its priority is low: where all cores are busy it takes a tenth of one.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#ifdef __linux__
#include <sys/resource.h>
#endif

#include <reprise/graph/schedule.hpp>
#include <reprise/plan/request.hpp>

namespace reprise::planning {

class PlanJob {
 public:
  using Work = std::function<Schedule(std::stop_token)>;

  explicit PlanJob(Work work) : work_(std::move(work)) {}

  [[nodiscard]] bool done() const {
    const std::lock_guard lock(guard_);
    return done_;
  }
  void wait() const {
    std::unique_lock lock(guard_);
    changed_.wait(lock, [this] { return done_; });
  }
  /// What the work returned, once; throws what it threw. Waits where it is not done.
  [[nodiscard]] Schedule take() {
    wait();
    if (failure_) std::rethrow_exception(failure_);
    return std::move(schedule_);
  }
  void cancel() { stop_.request_stop(); }

  /// Does the work, here. A cancelled job is done with an empty schedule.
  void run() {
    Schedule schedule;
    std::exception_ptr failure;
    try {
      if (!stop_.stop_requested()) schedule = work_(stop_.get_token());
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(guard_);
    schedule_ = std::move(schedule);
    failure_ = failure;
    work_ = {};
    done_ = true;
    changed_.notify_all();
  }

 private:
  mutable std::mutex guard_;
  mutable std::condition_variable changed_;
  Work work_;
  std::stop_source stop_;
  Schedule schedule_;
  std::exception_ptr failure_;
  bool done_ = false;
};

/// Lets this thread give way to all others: ten steps of niceness are a tenth of the weight. Where
/// the system has no priorities of threads, nothing changes.
inline void lower_thread_priority() {
#ifdef __linux__  // where a "process" of these calls is a thread
  constexpr int steps = 10, last = 19;
  static_cast<void>(
      setpriority(PRIO_PROCESS, 0, std::min(getpriority(PRIO_PROCESS, 0) + steps, last)));
#endif
}

enum class Urgency : std::uint8_t {
  usual,
  soon,  ///< before all that are usual
};

class BackgroundPlanner {
 public:
  BackgroundPlanner() = default;
  ~BackgroundPlanner() {
    {
      const std::lock_guard lock(guard_);
      for (const Waiting& waiting : waiting_) waiting.job->cancel();
      for (const auto& job : running_) job->cancel();
    }
    if (thread_) thread_->request_stop();
    changed_.notify_all();
  }
  BackgroundPlanner(const BackgroundPlanner&) = delete;
  BackgroundPlanner& operator=(const BackgroundPlanner&) = delete;

  [[nodiscard]] std::shared_ptr<PlanJob> submit(PlanJob::Work work,
                                                Urgency urgency = Urgency::usual) {
    auto job = std::make_shared<PlanJob>(std::move(work));
    const std::lock_guard lock(guard_);
    const auto behind = urgency == Urgency::usual
                            ? waiting_.end()
                            : std::ranges::find(waiting_, Urgency::usual, &Waiting::urgency);
    waiting_.insert(behind, {job, urgency});
    if (urgency == Urgency::soon) ++soon_;
    if (!thread_) thread_.emplace([this](const std::stop_token& stop) { run(stop); });
    changed_.notify_all();
    return job;
  }
  /// In a job: those that are to be done soon are done now, on its thread. Nothing on another one.
  void yield() {
    if (soon_.load(std::memory_order_relaxed) == 0 || self_ != std::this_thread::get_id()) return;
    const double start = thread_seconds();
    const double before = given_away_;
    std::unique_lock lock(guard_);
    while (!waiting_.empty() && waiting_.front().urgency == Urgency::soon) run_next(lock);
    given_away_ = before + thread_seconds() - start;
  }
  /// In a job: processor time of its thread that other jobs took in yield().
  [[nodiscard]] double given_away() const {
    return self_ == std::this_thread::get_id() ? given_away_ : 0;
  }

 private:
  struct Waiting {
    std::shared_ptr<PlanJob> job{};
    Urgency urgency{};
  };

  void run(const std::stop_token& stop) {
    self_ = std::this_thread::get_id();
    lower_thread_priority();
    while (true) {
      std::unique_lock lock(guard_);
      changed_.wait(lock, stop, [this] { return !waiting_.empty(); });
      // asked to stop; what waited is cancelled, and done with as such
      if (waiting_.empty()) return;
      run_next(lock);
    }
  }

  void run_next(std::unique_lock<std::mutex>& lock) {
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    if (next.urgency == Urgency::soon) --soon_;
    running_.push_back(next.job);
    lock.unlock();
    next.job->run();
    lock.lock();
    running_.pop_back();
  }

  std::mutex guard_;
  std::condition_variable_any changed_;
  std::deque<Waiting> waiting_;                    // those that are to be done soon first
  std::vector<std::shared_ptr<PlanJob>> running_;  // each in the yield() of the one before it
  std::atomic<int> soon_ = 0;
  std::atomic<std::thread::id> self_{};
  double given_away_ = 0;  // of the thread alone
  std::optional<std::jthread> thread_;  // last: joined first
};

}  // namespace reprise::planning
