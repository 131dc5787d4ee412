#pragma once
// Flags and exit codes, the same in all example programs.
//
//   std::int64_t steps = 5;
//   std::string config = "tiny", file;
//   bool compare = false;
//   examples::Flags flags("train_mlp", "Trains a multilayer perceptron on synthetic data.");
//   flags.add("--steps", "N", "how many steps", steps, 1);                    // at least 1
//   flags.choose("--config", {"tiny", "full"}, "size of the model", config);
//   flags.add("--compare", "run eager beside replay", compare);               // a switch
//   flags.positional("GRAPH", "a reprise.graph file", file);
//   if (!flags.parse(argc, argv)) return 0;                                   // --help was asked for, and given
//
// `--steps 5` and `--steps=5` are the same. What is wrong is said in one line, as a reprise::Error,
// which run() turns into a line on stderr and an exit code: 0 done, 1 a check failed, 2 bad flag or
// input, 3 budget not reachable.

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/base/units.hpp>

namespace examples {

enum ExitCode : int { done = 0, check_failed = 1, bad_input = 2, budget_not_reachable = 3 };

class Flags {
 public:
  Flags(std::string program, std::string about)
      : program_(std::move(program)), about_(std::move(about)) {}

  void add(std::string name, std::string what, bool& target) {
    flags_.push_back(
        {std::move(name), "", std::move(what), "", [&target](std::string_view) { target = true; }});
  }
  void add(std::string name, std::string value, std::string what, std::string& target) {
    flags_.push_back({std::move(name), std::move(value), std::move(what), target,
                      [&target](std::string_view text) { target = text; }});
  }
  void add(std::string name, std::string value, std::string what, std::int64_t& target,
           std::int64_t least = 0, std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
    add_number(std::move(name), std::move(value), std::move(what), target, least, most);
  }
  void add(std::string name, std::string value, std::string what, std::uint64_t& target) {
    add_number(std::move(name), std::move(value), std::move(what), target, std::uint64_t{0},
               std::numeric_limits<std::uint64_t>::max());
  }
  void add(std::string name, std::string value, std::string what, double& target, double least = 0,
           double most = std::numeric_limits<double>::max()) {
    add_number(std::move(name), std::move(value), std::move(what), target, least, most);
  }
  /// Bytes, 512MiB, 2GB or 50%.
  void add(std::string name, std::string value, std::string what, reprise::Size& target) {
    auto take = [name, &target](std::string_view text) {
      try {
        target = reprise::parse_size(text);
      } catch (const reprise::Error& error) {
        throw bad(name + ": " + error.what());
      }
    };
    flags_.push_back({name, std::move(value), std::move(what), "", std::move(take)});
  }
  /// One of the names given.
  void choose(std::string name, std::vector<std::string> names, std::string what,
              std::string& target) {
    std::string all;
    for (const std::string& each : names) all += (all.empty() ? "" : "|") + each;
    auto take = [name, names, all, &target](std::string_view text) {
      if (std::find(names.begin(), names.end(), text) == names.end())
        throw bad(name + " " + std::string(text) + ": must be one of " + all);
      target = text;
    };
    flags_.push_back({name, all, std::move(what), target, std::move(take)});
  }
  /// What stands without a flag, in the order of these calls; each must be given.
  void positional(std::string name, std::string what, std::string& target) {
    positionals_.push_back({std::move(name), "", std::move(what), "",
                            [&target](std::string_view text) { target = text; }});
  }

  /// False where --help was asked for and printed; the program has nothing else to do then.
  [[nodiscard]] bool parse(int argc, const char* const* argv) {
    std::size_t given = 0;
    for (int i = 1; i < argc; ++i) {
      const std::string_view text = argv[i];
      if (text == "--help" || text == "-h") return print_help(std::cout), false;
      if (!text.starts_with("--")) {
        if (given == positionals_.size())
          throw bad("unexpected argument '" + std::string(text) + "'");
        positionals_[given++].take(text);
        continue;
      }
      const std::size_t equals = text.find('=');
      const Flag& flag = find(text.substr(0, equals));
      if (flag.value.empty()) {
        if (equals != std::string_view::npos) throw bad(flag.name + " takes no value");
        flag.take({});
      } else if (equals != std::string_view::npos) {
        take(flag, text.substr(equals + 1));
      } else {
        take(flag, ++i < argc ? argv[i] : "");
      }
    }
    if (given < positionals_.size())
      throw bad(positionals_[given].name + " is missing: " + positionals_[given].what);
    return true;
  }

  void print_help(std::ostream& out) const {
    out << about_ << "\n\nUsage: " << program_;
    for (const Flag& each : positionals_) out << ' ' << each.name;
    out << (flags_.empty() ? "\n\n" : " [flags]\n\n");
    std::size_t width = 6;
    for (const auto* list : {&positionals_, &flags_})
      for (const Flag& each : *list) width = std::max(width, each.left().size());
    const auto line = [&](const std::string& left, const std::string& right) {
      out << "  " << left << std::string(width - left.size() + 2, ' ') << right << '\n';
    };
    for (const Flag& each : positionals_) line(each.left(), each.what);
    for (const Flag& each : flags_)
      line(each.left(), each.what + (each.standard.empty() ? "" : " (" + each.standard + ")"));
    line("--help", "this text");
    out << "\nExit codes: 0 done; 1 a check failed; 2 bad flag or input; 3 budget not reachable.\n";
  }

 private:
  struct Flag {
    std::string name{};
    std::string value{};  // what to write after it; empty for a switch
    std::string what{};
    std::string standard{};  // its value where it is not given
    std::function<void(std::string_view)> take{};

    [[nodiscard]] std::string left() const { return value.empty() ? name : name + " " + value; }
  };

  static void take(const Flag& flag, std::string_view text) {
    if (text.empty()) throw bad(flag.name + " needs a value: " + flag.value);
    flag.take(text);
  }
  static reprise::Error bad(const std::string& what) {
    return {reprise::Errc::bad_argument, what + "; see --help"};
  }

  [[nodiscard]] const Flag& find(std::string_view name) const {
    for (const Flag& flag : flags_)
      if (flag.name == name) return flag;
    throw bad("unknown flag " + std::string(name));
  }

  template <class T>
  void add_number(std::string name, std::string value, std::string what, T& target, T least,
                  T most) {
    auto take = [name, least, most, &target](std::string_view text) {
      T number{};
      const char* end = text.data() + text.size();
      const auto [rest, status] = std::from_chars(text.data(), end, number);
      if (status != std::errc{} || rest != end)
        throw bad(name + " " + std::string(text) + ": not a number that fits");
      if (!(number >= least))
        throw bad(name + " " + std::string(text) + ": must be at least " + show(least));
      if (!(number <= most))
        throw bad(name + " " + std::string(text) + ": must be at most " + show(most));
      target = number;
    };
    flags_.push_back(
        {std::move(name), std::move(value), std::move(what), show(target), std::move(take)});
  }

  template <class T>
  static std::string show(T number) {
    char text[64];
    return {text, std::to_chars(text, text + sizeof text, number).ptr};
  }

  std::string program_, about_;
  std::vector<Flag> flags_, positionals_;
};

[[nodiscard]] inline ExitCode exit_code(reprise::Errc code) {
  switch (code) {
    case reprise::Errc::budget_unreachable: return budget_not_reachable;
    case reprise::Errc::bad_schedule: return check_failed;
    default: return bad_input;
  }
}

/// What a library says, in one line: some messages end in a stack trace, and LibTorch's words for
/// "too large" name its sources.
[[nodiscard]] inline std::string plainly(std::string_view what) {
  what = what.substr(0, what.find('\n'));
  constexpr std::string_view tried = "you tried to allocate ";
  if (const auto at = what.find(tried); at != what.npos) {
    const std::string_view rest = what.substr(at + tried.size());
    return "there is not enough memory: " + std::string(rest.substr(0, rest.find(' '))) +
           " bytes were asked for at once; take a smaller batch";
  }
  if (what.find("calculation overflowed") != what.npos)
    return "a tensor of that size cannot be addressed; take a smaller batch";
  return std::string(what);
}

/// The body of main(): what `body` returns, or one line on stderr and the exit code that belongs to
/// what was thrown.
inline int run(std::string_view program, const std::function<int()>& body) {
  const auto say = [&](std::string_view what) {
    std::cerr << program << ": " << plainly(what) << '\n';
  };
  try {
    return body();
  } catch (const reprise::Error& error) {
    say(error.what());
    return exit_code(error.code());
  } catch (const std::exception& error) {
    say(error.what());
    return bad_input;
  }
}

}  // namespace examples
