// SPDX-License-Identifier: Apache-2.0
#include "common/config/config_tree.h"

#include <algorithm>
#include <array>
#include <exception>
#include <iterator>
#include <regex>
#include <sstream>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "common/text/text.h"
#include "common/text/visible_text.h"

namespace ferry {
namespace {

constexpr std::size_t kDeepest = 64;         // the tree is walked by recursion
constexpr std::size_t kMostValues = 50'000;  // aliases of aliases multiply without bound; 200 bytes each
constexpr std::size_t kMostOpen = 1'000;     // brackets
constexpr std::size_t kMostMarks = 100'000;  // characters that begin tokens
constexpr std::size_t kLongestPlain = 64;    // longer than any null, boolean or number

// Bounds yaml-cpp's memory. The library keeps tokens of some 100 bytes each before its first callback. They
// are the tokens of a line, or of a whole outermost list in brackets, which may be a key. 300 KiB of "[" took
// 80 MB, so the characters that begin tokens are counted first. A quoted string counts once while all quotes
// so far stood where JSON has them; after that its contents count too.
class Marks {
 public:
  explicit Marks(const ConfigText& source) : source_(source), text_(source.text) {}

  Result<> check() {
    for (at_ = 0; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_;
        if (open_ == 0) marks_ = 0;
      }
      if (c == '\n' || c == ' ' || c == '\t' || c == '\r') {
        spaced_ = true;
        continue;
      }
      if (c == '[' || c == '{') ++open_;
      if ((c == ']' || c == '}') && open_ > 0) --open_;
      if (spaced_ || std::string_view("[]{},:&*!?-'\"#").find(c) != std::string_view::npos) ++marks_;
      if (open_ > kMostOpen) return refuse(fmt::format("more than {} open brackets", kMostOpen));
      if (marks_ > kMostMarks) {
        return refuse(fmt::format(
            "more than {} words and punctuation marks on one line or in one list in brackets", kMostMarks));
      }
      if (c == '"' || c == '\'') skip_quoted(c);
      before_ = c == ':' ? last_ : ' ';
      last_ = c;
      spaced_ = false;
    }
    return {};
  }

 private:
  // Moves to the closing quote, if that quote is certain.
  void skip_quoted(char quote) {
    const bool begins =
        last_ == '[' || last_ == '{' || last_ == ',' || (last_ == ':' && (spaced_ || before_ == '"'));
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote && text_[end] != '\n')
      end += text_[end] == '\\' && quote == '"' ? 2 : 1;
    known_ = known_ && begins && end < text_.size() && text_[end] == quote;
    if (known_) at_ = end;
  }
  Result<> refuse(const std::string& what) const {
    return fail(Errc::invalid_config, fmt::format("{}: {}", source_.place(line_), what));
  }

  const ConfigText& source_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t open_ = 0;
  std::size_t marks_ = 0;
  int line_ = 1;
  bool known_ = true;   ///< every quote so far stood where JSON has one
  bool spaced_ = true;  ///< whitespace precedes the character
  char last_ = ' ';     ///< last character that is not whitespace
  char before_ = ' ';   ///< the character before a colon
};

}  // namespace

// Rejects everything that a YAML 1.1 or a YAML 1.2 reader takes for another type than a string.
bool is_plain_string(const std::string& text) {
  if (text.size() > kLongestPlain) return true;
  static constexpr std::array<std::string_view, 27> kWords = {
      "",   "~",    "null", "Null", "NULL", "y",     "Y",     "yes",   "Yes", "YES", "n",   "N",   "no", "No",
      "NO", "true", "True", "TRUE", "on",   "false", "False", "FALSE", "On",  "ON",  "off", "Off", "OFF"};
  if (std::ranges::find(kWords, text) != kWords.end()) return false;
  if (std::string_view("+-.0123456789").find(text.front()) == std::string_view::npos) return true;
  static const std::regex kNumber(
      "[-+]?0b[01_]+|[-+]?0o?[0-7_]+|[-+]?0x[0-9a-fA-F_]+|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])*|[-+]?(\\.[0-9]+|["
      "0-9][0-9_]*(\\.[0-9_]*)?)([eE][-+]?[0-9]+)?|[-+]?\\.(inf|Inf|INF)|\\.(nan|NaN|NAN)|[0-9]{4}-[0-9]{1,2}"
      "-[0-9]{1,2}");
  return !std::regex_match(text, kNumber);
}

namespace {

/// Thrown to end the parser, which has no other way to stop.
struct Ended : std::exception {};

/// Builds the tree from yaml-cpp's events, so that the text is read once.
class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(const ConfigText& source, std::vector<std::string>* tolerated)
      : source_(source), tolerated_(tolerated) {
    for (std::size_t begin = 0; begin <= source.text.size();) {
      const auto end = source.text.find('\n', begin);
      lines_.push_back(std::string_view(source.text).substr(begin, end - begin));
      if (end == std::string::npos) break;
      begin = end + 1;
    }
  }

  Result<ConfigNode> read(const std::string& text) {
    if (auto unreadable = parse(text)) return fail(*std::move(unreadable));
    if (refused_) {
      // A syntax error anywhere goes before the refusal of content in front of it.
      auto unreadable = parse(text);
      return fail(unreadable ? *std::move(unreadable) : *std::move(refused_));
    }
    if (root_) return *std::move(root_);
    ConfigNode nothing;
    nothing.line = 1;
    return nothing;
  }

  // yaml-cpp 0.7 never gets past a token that can begin nothing (an extra "," or "}"): it reports empty
  // documents without end. Such a document begins where the last one did.
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (mark.pos <= last_start_) throw YAML::ParserException(mark, "nothing can begin here");
    last_start_ = mark.pos;
    anchors_.clear();
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (refused_) return;
    place({.node = begin(mark, "", ConfigNode::Kind::null)}, anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (refused_) return;
    Part part{.node = begin(mark, tag, ConfigNode::Kind::scalar)};
    part.node.text = value;
    part.node.quoted = is_text(tag);
    if (part.node.quoted && starts_literal_block(mark)) part.node.block_line = part.node.line + 1;
    place(std::move(part), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (refused_) return;
    const int line = mark.line + 1;
    const auto named = anchors_.find(anchor);
    if (named == anchors_.end()) refuse(line, "an alias to what surrounds it would go on for ever");
    count(named->second.values, line);
    check_depth(named->second.height, line);
    place(named->second, YAML::NullAnchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    if (!refused_) open(begin(mark, tag, ConfigNode::Kind::list), anchor);
  }
  void OnSequenceEnd() override {
    if (!refused_) close();
  }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    if (!refused_) open(begin(mark, tag, ConfigNode::Kind::map), anchor);
  }
  // The map's own members go before merged ones, and the first of several merged maps before the others.
  // https://yaml.org/type/merge.html
  void OnMapEnd() override {
    if (refused_) return;
    Open& map = open_.back();
    for (ConfigNode& merged : map.merged) {
      for (ConfigMember& member : merged.members) {
        if (map.seen.emplace(member.key.text, member.key.line).second)
          map.part.node.members.push_back(std::move(member));
      }
    }
    close();
  }

 private:
  struct Part {
    ConfigNode node;
    std::size_t values = 1;  ///< values in the node, itself included
    std::size_t height = 0;  ///< levels below the node
  };

  /// A list or map whose end has not been read.
  struct Open {
    Part part;
    YAML::anchor_t anchor = YAML::NullAnchor;
    std::size_t values_before = 0;
    std::optional<ConfigNode> key = {};  ///< a map's key whose value comes next
    std::vector<ConfigNode> merged = {};
    bool merges = false;
    std::unordered_map<std::string, int> seen = {};  // key and line; ConfigNode::find() would make a long map
                                                     // quadratic
  };

  /// The syntax error; absent: all was read, or the builder ended it. Events after a refusal are ignored.
  std::optional<Error> parse(const std::string& text) {
    last_start_ = -1;
    try {
      std::istringstream input(text);
      YAML::Parser parser(input);
      while (parser.HandleNextDocument(*this)) {
      }
    } catch (const Ended&) {
      return std::nullopt;
    } catch (const YAML::Exception& error) {
      // The parser means by these that a line is indented to no list or map above it.
      std::string why = error.msg;
      if (why == "end of sequence not found") why = "its indentation fits no list above it";
      if (why == "end of map not found") why = "its indentation fits no map above it";
      return wrong(error.mark.line + 1, "not readable as YAML: " + why, syntax_hint(error.mark.line));
    }
    return std::nullopt;
  }

  /// The hint for an unreadable line (from 0): whether its indentation is wrong.
  std::string syntax_hint(int number) const {
    constexpr const char* kOtherwise =
        "see this line and those before it for a missing quote, bracket or colon";
    const auto at = static_cast<std::size_t>(number);
    if (number < 0 || at >= lines_.size()) return kOtherwise;
    const std::string_view line = lines_[at];
    if (line.substr(0, line.find_first_not_of(" \t")).find('\t') != std::string_view::npos)
      return "indent it with blanks: YAML takes no tab there";
    const auto key = key_column(line);
    std::size_t before = at;
    while (before > 0 && is_blank(lines_[before - 1])) --before;
    const auto earlier = before > 0 ? key_column(lines_[before - 1]) : std::nullopt;
    // A key without a value may have deeper keys below it.
    if (!key || !earlier || *key <= *earlier || lines_[before - 1].ends_with(':')) return kOtherwise;
    return fmt::format(
        "its key begins {} deeper than the key in the line before: keys of one map begin in the same column",
        counted(*key - *earlier, "blank"));
  }
  static bool is_blank(std::string_view line) {
    const auto first = line.find_first_not_of(" \t\r");
    return first == std::string_view::npos || line[first] == '#';
  }
  /// Column of a line's key, after the dashes of list items. Absent: the line has no key.
  static std::optional<std::size_t> key_column(std::string_view line) {
    std::size_t column = line.find_first_not_of(' ');
    while (column != std::string_view::npos && line.substr(column).starts_with("- "))
      column = line.find_first_not_of(' ', column + 1);
    if (column == std::string_view::npos) return std::nullopt;
    const bool has_key = line.find(": ", column) != std::string_view::npos || line.ends_with(':');
    return has_key ? std::optional(column) : std::nullopt;
  }

  static bool is_text(const std::string& tag) { return tag == "!" || tag == "tag:yaml.org,2002:str"; }

  Error wrong(int line, const std::string& what, std::string hint = {}) const {
    return {.code = Errc::invalid_config,
            .message = fmt::format("{}: {}", source_.place(line), what),
            .hint = std::move(hint)};
  }
  [[noreturn]] void refuse(int line, const std::string& what, std::string hint = {}) {
    refused_ = wrong(line, what, std::move(hint));
    throw Ended();
  }
  /// Returns whether leniency is on, and then notes the input as accepted.
  bool let_pass(int line, const std::string& what) const {
    if (tolerated_ != nullptr) tolerated_->push_back(fmt::format("{}: {}", source_.place(line), what));
    return tolerated_ != nullptr;
  }

  void count(std::size_t values, int line) {
    values_ += values;
    if (values_ > kMostValues)
      refuse(line, fmt::format("more than {} values after all aliases are applied", kMostValues));
  }
  void check_depth(std::size_t height, int line) {
    if (open_.size() + height > kDeepest) refuse(line, fmt::format("nested deeper than {} levels", kDeepest));
  }

  ConfigNode begin(const YAML::Mark& mark, const std::string& tag, ConfigNode::Kind kind) {
    ConfigNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    if (root_ && kind != ConfigNode::Kind::null) {
      if (let_pass(node.line, "a second document begins here; it is not read")) throw Ended();
      refuse(node.line, "a second document begins here", "keep one document in a file");
    }
    check_depth(0, node.line);
    count(1, node.line);
    if (!tag.empty() && tag != "?" && !is_text(tag))
      refuse(node.line, fmt::format("the tag '{}' is not understood", tag), "leave it out");
    return node;
  }

  void open(ConfigNode node, YAML::anchor_t anchor) {
    if (!open_.empty() && open_.back().part.node.kind == ConfigNode::Kind::map && !open_.back().key)
      refuse_key(node.line);
    open_.push_back({.part = {.node = std::move(node)}, .anchor = anchor, .values_before = values_ - 1});
  }

  void close() {
    Open ended = std::move(open_.back());
    open_.pop_back();
    ended.part.values = values_ - ended.values_before;
    place(std::move(ended.part), ended.anchor);
  }

  void place(Part part, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) keep(part, anchor);
    if (open_.empty()) {
      if (part.node.kind != ConfigNode::Kind::null) root_ = std::move(part.node);
      return;
    }
    Open& in = open_.back();
    in.part.height = std::max(in.part.height, part.height + 1);
    if (in.part.node.kind == ConfigNode::Kind::list) {
      in.part.node.items.push_back(std::move(part.node));
    } else if (!in.key) {
      ConfigNode key = std::move(part.node);
      if (key.kind == ConfigNode::Kind::null)
        key.kind = ConfigNode::Kind::scalar;  // `~:` and `: x`; is_string() is false for both
      if (key.kind != ConfigNode::Kind::scalar) refuse_key(key.line);
      in.key = std::move(key);
    } else {
      ConfigNode key = *std::move(in.key);
      in.key.reset();
      place_value(in, std::move(key), std::move(part.node));
    }
  }

  // Keeps a copy. Values of anchors in it count again: a few lines of nested anchors would take gigabytes.
  void keep(const Part& part, YAML::anchor_t anchor) {
    kept_ += part.values;
    if (kept_ > kMostValues)
      refuse(part.node.line, fmt::format("more than {} values below anchors", kMostValues));
    anchors_[anchor] = part;
  }

  [[noreturn]] void refuse_key(int line) { refuse(line, "a key must be a single word"); }

  void place_value(Open& in, ConfigNode key, ConfigNode value) {
    if (value.kind == ConfigNode::Kind::null) value.line = key.line;  // yaml-cpp gives the next token's line
    if (!key.quoted && key.text == "<<") {
      if (in.merges) refuse(key.line, "<<: the key stands twice", "merge a list: <<: [*first, *second]");
      in.merges = true;
      const auto is_map = [](const ConfigNode& node) { return node.kind == ConfigNode::Kind::map; };
      if (is_map(value)) {
        in.merged.push_back(std::move(value));
      } else if (value.kind == ConfigNode::Kind::list && std::ranges::all_of(value.items, is_map)) {
        std::ranges::move(value.items, std::back_inserter(in.merged));
      } else {
        refuse(key.line, "<<: only a map, or a list of maps, can be merged in");
      }
      return;
    }

    auto& members = in.part.node.members;
    if (const auto [first, fresh] = in.seen.emplace(key.text, key.line); !fresh) {
      const std::string twice =
          fmt::format("{}: the key stands twice, first at {}", key.text, source_.place(first->second));
      if (!let_pass(key.line, twice + "; the last one counts")) refuse(key.line, twice);
      std::erase_if(members, [&](const ConfigMember& member) { return member.key.text == key.text; });
    }
    members.push_back({.key = std::move(key), .value = std::move(value)});
  }

  // yaml-cpp reports literal blocks like quoted strings, so the text at the mark decides. Anchors and tags
  // may stand before the bar.
  bool starts_literal_block(const YAML::Mark& mark) const {
    if (mark.line < 0 || static_cast<std::size_t>(mark.line) >= lines_.size()) return false;
    std::string_view line = lines_[static_cast<std::size_t>(mark.line)];
    line.remove_prefix(std::min(line.size(), static_cast<std::size_t>(std::max(mark.column, 0))));
    while (line.starts_with('&') || line.starts_with('!')) {
      line.remove_prefix(std::min(line.size(), line.find(' ')));
      line.remove_prefix(std::min(line.size(), line.find_first_not_of(' ')));
    }
    return line.starts_with('|');
  }

  const ConfigText& source_;
  std::vector<std::string>* tolerated_;
  std::vector<std::string_view> lines_;
  std::vector<Open> open_;
  std::unordered_map<YAML::anchor_t, Part> anchors_;  ///< nodes that have ended
  std::optional<ConfigNode> root_;
  std::optional<Error> refused_;
  std::size_t values_ = 0;
  std::size_t kept_ = 0;  ///< values in anchors_
  int last_start_ = -1;
};

}  // namespace

std::string shortened(std::string_view text) {
  constexpr std::size_t kMost = 40;
  if (text.size() <= kMost) return std::string(text);
  return std::string(beginning_of(text, kMost)) + "…";
}

const ConfigMember* ConfigNode::find(std::string_view key) const {
  const auto found =
      std::find_if(members.begin(), members.end(), [&](const ConfigMember& m) { return m.key.text == key; });
  return found == members.end() ? nullptr : &*found;
}

bool ConfigNode::is_string() const {
  return kind == Kind::scalar && (quoted || is_plain_string(text));
}

std::string ConfigNode::described() const {
  switch (kind) {
    case Kind::null:
      return "nothing";
    case Kind::list:
      return "a list";
    case Kind::map:
      return "a map";
    case Kind::scalar:
      break;
  }
  return is_string() ? fmt::format("the string '{}'", shortened(text)) : shortened(text);
}

Result<ConfigNode> parse_config(const ConfigText& source, std::vector<std::string>* tolerated) {
  if (source.text.find('\0') != std::string::npos || !is_utf8(source.text))
    return fail(Errc::invalid_config, source.file + ": not a text in UTF-8");
  if (auto checked = Marks(source).check(); !checked) return fail(std::move(checked).error());
  // yaml-cpp 0.7 takes an open quote for closed if a newline ends the file, and refuses it otherwise.
  return TreeBuilder(source, tolerated)
      .read(source.text.substr(0, source.text.find_last_not_of(" \r\n") + 1));
}

}  // namespace ferry
