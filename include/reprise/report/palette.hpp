#pragma once
// color_of() gives each role one colour, the same in every picture: DOT, plots and report. The
// colours can be distinguished on white and on near-black.
//
//   color_of(Role::activation)    "#f28e2b"

#include <string_view>

#include <reprise/graph/step_graph.hpp>

namespace reprise::reporting {

[[nodiscard]] constexpr std::string_view color_of(Role role) {
  constexpr std::string_view colors[] = {"#4e79a7", "#9c755f", "#76b7b2", "#f28e2b",
                                         "#e15759", "#b07aa1", "#8a8d91", "#59a14f"};
  return colors[static_cast<std::size_t>(role)];
}

inline constexpr std::string_view workspace_color = "#edc948";

}  // namespace reprise::reporting
