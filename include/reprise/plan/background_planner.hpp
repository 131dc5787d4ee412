#pragma once
// A BackgroundPlanner plans on a thread of its own, one op sequence after the other, while steps go
// on.
//
// ```cpp
// BackgroundPlanner planner;
// auto job = planner.submit([&](std::stop_token stop) {
//   return plan_with("anneal", graph, {.budget = 4_GiB, .cancel = stop}).schedule;
// });
// if (job->done()) use(job->take());          // or job->wait(), which blocks
// job->cancel();                              // the result is not needed: never blocks
// ```
//
// The thread starts with the first job. The planner's destructor cancels the running job and ends
// it.

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include <reprise/graph/schedule.hpp>

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
  /// Returns the work's result, once; throws the work's exception. Waits if the work is not done.
  [[nodiscard]] Schedule take() {
    wait();
    if (failure_) std::rethrow_exception(failure_);
    return std::move(schedule_);
  }
  void cancel() { stop_.request_stop(); }

  /// Does the work on this thread. A cancelled job ends with an empty schedule.
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

class BackgroundPlanner {
 public:
  BackgroundPlanner() = default;
  ~BackgroundPlanner() {
    {
      const std::lock_guard lock(guard_);
      for (const auto& job : waiting_) job->cancel();
      if (running_) running_->cancel();
    }
    if (thread_) thread_->request_stop();
    changed_.notify_all();
  }
  BackgroundPlanner(const BackgroundPlanner&) = delete;
  BackgroundPlanner& operator=(const BackgroundPlanner&) = delete;

  [[nodiscard]] std::shared_ptr<PlanJob> submit(PlanJob::Work work) {
    auto job = std::make_shared<PlanJob>(std::move(work));
    const std::lock_guard lock(guard_);
    waiting_.push_back(job);
    if (!thread_) thread_.emplace([this](const std::stop_token& stop) { run(stop); });
    changed_.notify_all();
    return job;
  }

 private:
  void run(const std::stop_token& stop) {
    while (true) {
      std::unique_lock lock(guard_);
      changed_.wait(lock, stop, [this] { return !waiting_.empty(); });
      // asked to stop: waiting jobs are cancelled and end with an empty schedule
      if (waiting_.empty()) return;
      running_ = std::move(waiting_.front());
      waiting_.pop_front();
      const std::shared_ptr<PlanJob> job = running_;
      lock.unlock();
      job->run();
      lock.lock();
      running_.reset();
    }
  }

  std::mutex guard_;
  std::condition_variable_any changed_;
  std::deque<std::shared_ptr<PlanJob>> waiting_;
  std::shared_ptr<PlanJob> running_;
  std::optional<std::jthread> thread_;  // last: joined first
};

}  // namespace reprise::planning
