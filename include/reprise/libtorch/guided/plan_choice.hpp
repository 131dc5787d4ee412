#pragma once
// A PlanChoice decides which plan a step follows. It asks at the step's first op, and again when
// the op sequence has diverged from the plan and another plan may begin with the same ops.

#include <functional>
#include <memory>
#include <utility>

#include <reprise/libtorch/guided/plan_follower.hpp>

namespace reprise::guided {

class PlanChoice {
 public:
  /// The plan to follow for a step that has made these calls and goes on with this op; null for
  /// none.
  using Choose = std::function<std::shared_ptr<const PlannedSequence>(
      const Recording& so_far, const Call& next, Bytes base)>;

  explicit PlanChoice(Choose choose) : choose_(std::move(choose)) {}

  /// Chooses a plan before the next op, if the choice is open.
  void before_op(const RecordingTables& tables, PlanFollower& follower, const Call& call) {
    if (asks_) find_plan(tables, follower, call);
  }
  /// Does everything that the plan has before the next op, if this op is the planned one.
  void advance(const RecordingTables& tables, PlanFollower& follower, const Call& call) {
    if (!follower.is_following()) return;
    const NodeId node = tables.next_node();
    follower.advance_to(node, false);
    if (follower.is_following() && follower.is_call(node, call)) return;
    diverge(follower, "another op came");
    if (asks_) find_plan(tables, follower, call);
    if (follower.is_following()) follower.advance_to(node, false);
  }
  /// Leaves the plan. Another plan may begin with the same ops.
  void diverge(PlanFollower& follower, const char* why) {
    if (!follower.is_following()) return;
    follower.leave(why);
    asks_ = true;
  }
  /// The step goes on without a plan.
  void give_up(PlanFollower& follower, const char* why) {
    follower.leave(why);
    asks_ = false;
  }
  /// Whether a plan was entered in the middle of the step.
  [[nodiscard]] bool entered_late() const { return entered_late_; }

 private:
  void find_plan(const RecordingTables& tables, PlanFollower& follower, const Call& call) {
    asks_ = false;
    auto found = choose_ ? choose_(tables.recording(), call, tables.base()) : nullptr;
    if (!found) return;
    if (tables.calls_seen() == 0) return follower.follow(std::move(found));
    entered_late_ = true;
    follower.enter(std::move(found), tables.next_node());
  }

  Choose choose_;
  bool asks_ = true;  // whether to choose at the next op
  bool entered_late_ = false;
};

}  // namespace reprise::guided
