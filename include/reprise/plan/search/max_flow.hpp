#pragma once
// The narrowest cut of a network, by maximum flow.
//
//          3          2              FlowNetwork net{4};        s, a, b, t are 0, 1, 2, 3
//     s ──────▶ a ──────▶ t          net.join(0, 1, 3); net.join(1, 3, 2); net.join(0, 2, 1); net.join(2, 3, 5); net.join(1, 2, 9);
//     │         │ 9       ▲
//     │ 1       ▼         │          *net.send(0, 3) == 4        all that leaves s: 3 + 1
//     └───────▶ b ────────┘          net.reached_from(0)         s alone: both of its edges are full, and they are the cut
//                    5
//
// Dinic's algorithm: paths of the fewest edges first, all of one length in one go. What is reached from the source in the end is the
// same whichever way the flow is found: the side of the cut that is as small as can be. Nothing recurses: a network may be as deep as
// a step is long.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

namespace reprise {

class FlowNetwork {
 public:
  explicit FlowNetwork(std::size_t vertices) : first_(vertices, none) {}

  /// An edge, and the way back, on which nothing can be sent before something came.
  void join(std::size_t from, std::size_t to, std::int64_t width) {
    add(from, to, width);
    add(to, from, 0);
  }

  /// Sends as much as the edges let through, and says how much that is; none where it was told to
  /// stop before.
  std::optional<std::int64_t> send(std::size_t source, std::size_t sink,
                                   const std::function<bool()>& stop = {}) {
    std::int64_t sent = 0;
    while (count_steps(source, sink)) {
      next_ = first_;
      const auto more = send_along_shortest(source, sink, stop);
      if (!more) return std::nullopt;
      sent += *more;
    }
    return sent;
  }

  /// By vertex: whether more could be sent there.
  [[nodiscard]] std::vector<bool> reached_from(std::size_t source) const {
    std::vector<bool> reached(first_.size(), false);
    std::vector<std::size_t> open{source};
    reached[source] = true;
    while (!open.empty()) {
      const std::size_t v = open.back();
      open.pop_back();
      for (std::size_t e = first_[v]; e != none; e = edges_[e].next) {
        if (edges_[e].left == 0 || reached[edges_[e].to]) continue;
        reached[edges_[e].to] = true;
        open.push_back(edges_[e].to);
      }
    }
    return reached;
  }

 private:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  struct Edge {
    std::size_t to;
    std::size_t next;    // of those that leave the same vertex
    std::int64_t left;   // what can still be sent; the way back of edge e is edge e ^ 1
  };

  void add(std::size_t from, std::size_t to, std::int64_t width) {
    edges_.push_back({to, first_[from], width});
    first_[from] = edges_.size() - 1;
  }

  // How many edges each vertex is away from the source, as far as the sink; false where the sink is not reached.
  bool count_steps(std::size_t source, std::size_t sink) {
    steps_.assign(first_.size(), none);
    steps_[source] = 0;
    std::vector<std::size_t> queue{source};
    for (std::size_t i = 0; i < queue.size() && steps_[sink] == none; ++i) {
      for (std::size_t e = first_[queue[i]]; e != none; e = edges_[e].next) {
        if (edges_[e].left == 0 || steps_[edges_[e].to] != none) continue;
        steps_[edges_[e].to] = steps_[queue[i]] + 1;
        queue.push_back(edges_[e].to);
      }
    }
    return steps_[sink] != none;
  }

  // next_ is the first edge of each vertex that may still lead somewhere.
  std::optional<std::int64_t> send_along_shortest(std::size_t source, std::size_t sink,
                                                  const std::function<bool()>& stop) {
    std::int64_t sent = 0;
    std::vector<std::size_t> path;
    std::size_t v = source;
    for (std::size_t moves = 0;; ++moves) {
      if (stop && moves % 4096 == 0 && stop()) return std::nullopt;
      if (v == sink) {
        sent += fill(path);
        v = path.empty() ? source : edges_[path.back()].to;
      } else if (const std::size_t e = usable_edge(v); e != none) {
        path.push_back(e);
        v = edges_[e].to;
      } else if (v == source) {
        return sent;
      } else {
        steps_[v] = none;  // leads nowhere
        v = edges_[path.back() ^ 1].to;
        path.pop_back();
      }
    }
  }

  std::size_t usable_edge(std::size_t v) {
    for (std::size_t& e = next_[v]; e != none; e = edges_[e].next)
      if (edges_[e].left > 0 && steps_[edges_[e].to] == steps_[v] + 1) return e;
    return none;
  }

  // Sends through the path what its narrowest edge lets through, and cuts the path off before the first edge that is full.
  std::int64_t fill(std::vector<std::size_t>& path) {
    std::int64_t width = std::numeric_limits<std::int64_t>::max();
    for (std::size_t e : path) width = std::min(width, edges_[e].left);
    for (std::size_t e : path) {
      edges_[e].left -= width;
      edges_[e ^ 1].left += width;
    }
    path.erase(std::find_if(path.begin(), path.end(), [&](std::size_t e) { return edges_[e].left == 0; }), path.end());
    return width;
  }

  std::vector<std::size_t> first_;  // edge, by vertex
  std::vector<Edge> edges_{};
  std::vector<std::size_t> steps_{}, next_{};  // by vertex, while something is sent
};

}  // namespace reprise
