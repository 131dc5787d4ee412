#pragma once
// LearnedAddresses learns offsets for the large blocks of a training loop from earlier steps. If
// all steps allocate the same blocks in the same order, each block gets an offset that is free for
// its whole life.
//
//   steps 1, 2   a 40   b 25   a dies   c 30   b dies   d 20 (outlives the step)      the same blocks twice: they are laid out,
//                a at 0, b at 40, c at 0, d at 40: height 65, the maximum of the live bytes
//   step 3       the first block of 40 shall be at 0, the first of 25 at 40, …
//
// When two steps in a row allocate the same sizes in the same order, each block gets an offset. A
// block's key is its size and its rank among blocks of that size: an extra block moves only blocks
// of its own size. Some blocks are still live when the next step allocates its first block: a
// tensor that the user keeps, a gradient that is freed late. They get no offset here.
//
// A step misses if more than an eighth of its bytes do not get their offsets (the last batch of an
// epoch). One miss is ignored, two in a row discard the layout. A layout takes time to make: if
// several in a row were soon discarded, no more are made.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <reprise/base/units.hpp>
#include <reprise/pack/assign_offsets.hpp>

namespace reprise::packing {

class LearnedAddresses {
 public:
  using Address = const void*;

  void begin() {
    now_.clear();
    alive_.clear();
    asked_.clear();
    bytes_ = missed_ = 0;
    on_ = true;
  }

  /// The offset of the block that is allocated now; empty if none is known.
  [[nodiscard]] std::optional<std::size_t> next(std::size_t bytes) {
    if (!on_) return std::nullopt;
    const std::size_t count = asked_[bytes]++;
    const auto known = offsets_.find(bytes);
    if (known != offsets_.end() && count < known->second.size()) return known->second[count];
    missed(bytes);
    return std::nullopt;
  }
  /// The block could not get its offset.
  void missed(std::size_t bytes) { missed_ += bytes; }
  /// The block's actual address: at its offset, or elsewhere.
  void born(Address address, std::size_t bytes) {
    if (!on_ || now_.size() > most_blocks) return;
    alive_[address] = now_.size();
    now_.push_back({static_cast<std::int64_t>(bytes), ++time_, not_yet});
    bytes_ += bytes;
  }
  /// Also between steps, and for unknown blocks.
  void died(Address address) {
    if (const auto it = alive_.find(address); it != alive_.end()) {
      now_[it->second].died = ++time_;
      alive_.erase(it);
    } else if (const auto old = outlived_.find(address); old != outlived_.end()) {
      if (now_.empty()) before_[old->second].gone_in_time = true;
      outlived_.erase(old);
    }
  }

  /// The step has ended. True if the layout has changed or was discarded.
  [[nodiscard]] bool end() {
    if (!std::exchange(on_, false)) return false;
    const bool other_again = same_sizes(now_, before_) && !same_sizes(now_, laid_out_);
    const bool kept_to = height_ > 0 && !other_again && missed_ <= bytes_ / 8;
    steps_kept_ += kept_to ? 1 : 0;
    steps_missed_ = kept_to ? 0 : steps_missed_ + 1;
    const bool in_use = height_ > 0;
    if (in_use && (other_again || steps_missed_ >= 2)) give_up();
    const bool changed = (other_again && lay_out()) || (in_use && height_ == 0);
    before_ = std::move(now_);
    outlived_ = std::move(alive_);
    now_.clear();
    alive_.clear();
    return changed;
  }
  /// The step was aborted: nothing is learned from it.
  void abandon() {
    begin();
    on_ = false;
    before_.clear();
    outlived_.clear();
  }
  /// Discards an unusable layout. It was worth its cost if many steps have used it.
  void give_up() {
    given_up_ = steps_kept_ >= worth_making ? 0 : given_up_ + 1;
    forget_layout();
  }
  /// Forgets everything.
  void forget() {
    abandon();
    forget_layout();
    given_up_ = 0;
  }

  /// The layout's size in bytes; 0 for none.
  [[nodiscard]] std::size_t height() const { return height_; }

 private:
  static constexpr std::int64_t not_yet = -1;
  static constexpr std::size_t most_blocks = 5'000;
  static constexpr int patience = 4, worth_making = 8;
  // of improvement: a tenth of a second for a thousand blocks
  static constexpr std::size_t rounds = 200;

  struct Block {
    std::int64_t bytes = 0, born = 0, died = not_yet;
    /// for a block that outlived its step: it died before the next step's first block
    bool gone_in_time = false;
  };

  [[nodiscard]] static bool same_sizes(const std::vector<Block>& a, const std::vector<Block>& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i)
      if (a[i].bytes != b[i].bytes) return false;
    return true;
  }

  bool lay_out() {
    if (now_.size() > most_blocks || given_up_ >= patience) return false;
    const auto has_place = [&](std::size_t i) {
      return now_[i].died != not_yet || (before_[i].died == not_yet && before_[i].gone_in_time);
    };
    std::vector<Buffer> buffers;
    for (std::size_t i = 0; i < now_.size(); ++i)
      if (has_place(i))
        buffers.push_back({now_[i].born, now_[i].died != not_yet ? now_[i].died : time_ + 1,
                           Bytes{now_[i].bytes}});
    const ArenaPlan plan = assign_offsets(buffers, {.rounds = rounds});
    forget_layout();
    std::size_t placed = 0;
    for (std::size_t i = 0; i < now_.size(); ++i) {
      std::optional<std::size_t> offset;
      if (has_place(i)) offset = static_cast<std::size_t>(plan.offsets[placed++].count);
      offsets_[static_cast<std::size_t>(now_[i].bytes)].push_back(offset);
    }
    height_ = static_cast<std::size_t>(plan.height.count);
    laid_out_ = now_;
    return true;
  }
  void forget_layout() {
    offsets_.clear();
    laid_out_.clear();
    height_ = 0;
    steps_kept_ = steps_missed_ = 0;
  }

  bool on_ = false;
  // blocks allocated and freed so far
  std::int64_t time_ = 0;
  // of this step: all bytes, and those without their offset
  std::size_t bytes_ = 0, missed_ = 0;
  // in the order of allocation
  std::vector<Block> now_, before_, laid_out_;
  // blocks of this step, and of the one before
  std::unordered_map<Address, std::size_t> alive_, outlived_;
  // by size: how many so far
  std::unordered_map<std::size_t, std::size_t> asked_;
  // by size, in order
  std::unordered_map<std::size_t, std::vector<std::optional<std::size_t>>> offsets_;
  std::size_t height_ = 0;
  int steps_kept_ = 0, steps_missed_ = 0;  // since the layout was made; missed: in a row
  int given_up_ = 0;                       // layouts in a row that were soon discarded
};

}  // namespace reprise::packing
