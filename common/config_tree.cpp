// SPDX-License-Identifier: Apache-2.0
#include "common/config_tree.h"

#include <algorithm>
#include <regex>
#include <sstream>
#include <unordered_map>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

namespace ferry {
namespace {

constexpr int kDeepest = 64;                 // an alias to what surrounds it would go on for ever
constexpr std::size_t kMostValues = 200000;  // aliases of aliases grow without bound
constexpr std::size_t kLongestPlain = 64;    // no null, boolean or number is longer

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    std::size_t length = 0;
    if (byte < 0x80) {
      length = 1;
    } else if (byte >= 0xc2 && byte < 0xe0) {
      length = 2;
    } else if (byte >= 0xe0 && byte < 0xf0) {
      length = 3;
    } else if (byte >= 0xf0 && byte < 0xf5) {
      length = 4;
    }
    if (length == 0 || i + length > text.size()) return false;
    for (std::size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0U) != 0x80) return false;
    }
    i += length;
  }
  return true;
}

}  // namespace

// The union of what YAML 1.1 and 1.2 readers take for something else than a string.
bool is_plain_string(const std::string& text) {
  if (text.size() > kLongestPlain) return true;
  static const std::regex kOther(
      "|~|null|Null|NULL"
      "|[yY]|yes|Yes|YES|[nN]|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF"
      "|[-+]?0b[01_]+|[-+]?0o?[0-7_]+|[-+]?0x[0-9a-fA-F_]+|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])*"
      "|[-+]?(\\.[0-9]+|[0-9][0-9_]*(\\.[0-9_]*)?)([eE][-+]?[0-9]+)?"
      "|[-+]?\\.(inf|Inf|INF)|\\.(nan|NaN|NAN)"
      "|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}");
  return !std::regex_match(text, kOther);
}

namespace {

// yaml-cpp 0.7 never gets past a token that can begin nothing (a "," or "}" too many): it answers with empty
// documents, and LoadAll collects them for ever. A document that begins where the last one did tells.
class DocumentStarts final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (mark.pos <= last_) throw YAML::ParserException(mark, "nothing can begin here");
    last_ = mark.pos;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnScalar(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {}
  void OnSequenceStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {}
  void OnMapEnd() override {}

 private:
  int last_ = -1;
};

std::vector<YAML::Node> load_documents(const std::string& text) {
  std::istringstream input(text);
  YAML::Parser parser(input);
  DocumentStarts starts;
  while (parser.HandleNextDocument(starts)) {
  }
  return YAML::LoadAll(text);
}

class Converter {
 public:
  Converter(const ConfigText& source, std::vector<std::string>* tolerated)
      : source_(source), tolerated_(tolerated) {
    for (std::size_t begin = 0; begin <= source.text.size();) {
      const auto end = source.text.find('\n', begin);
      lines_.push_back(std::string_view(source.text).substr(begin, end - begin));
      if (end == std::string::npos) break;
      begin = end + 1;
    }
  }

  Result<ConfigNode> convert(const YAML::Node& from, int depth = 0) {
    ConfigNode node;
    node.line = from.Mark().line + 1;
    if (depth > kDeepest) return refuse(node.line, fmt::format("nested deeper than {} levels", kDeepest));
    if (++values_ > kMostValues) {
      return refuse(node.line, fmt::format("more than {} values after all aliases are applied", kMostValues));
    }
    const std::string& tag = from.Tag();
    const bool is_text = tag == "!" || tag == "tag:yaml.org,2002:str";
    if (!tag.empty() && tag != "?" && !is_text) {
      return refuse(node.line, fmt::format("the tag '{}' is not understood", tag), "leave it out");
    }
    switch (from.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        node.kind = ConfigNode::Kind::null;
        return node;
      case YAML::NodeType::Scalar:
        node.kind = ConfigNode::Kind::scalar;
        node.text = from.Scalar();
        node.quoted = is_text;
        if (is_text && starts_literal_block(from.Mark())) node.block_line = node.line + 1;
        return node;
      case YAML::NodeType::Sequence:
        return convert_list(from, std::move(node), depth);
      case YAML::NodeType::Map:
        return convert_map(from, std::move(node), depth);
    }
    return node;
  }

  /// Whether it is tolerated, and then said.
  bool let_pass(int line, const std::string& what) const {
    if (tolerated_ != nullptr) tolerated_->push_back(fmt::format("{}: {}", source_.place(line), what));
    return tolerated_ != nullptr;
  }

  tl::unexpected<Error> refuse(int line, const std::string& what, std::string hint = {}) const {
    return fail(Errc::invalid_config, fmt::format("{}: {}", source_.place(line), what), std::move(hint));
  }

 private:
  Result<ConfigNode> convert_list(const YAML::Node& from, ConfigNode node, int depth) {
    node.kind = ConfigNode::Kind::list;
    for (const YAML::Node& item : from) {
      auto converted = convert(item, depth + 1);
      if (!converted) return converted;
      node.items.push_back(std::move(*converted));
    }
    return node;
  }

  Result<ConfigNode> convert_map(const YAML::Node& from, ConfigNode node, int depth) {
    node.kind = ConfigNode::Kind::map;
    std::vector<ConfigNode> merged;
    std::unordered_map<std::string, int> seen;  // key and line; find() would make a long map quadratic
    bool merges = false;
    for (const auto& pair : from) {
      auto key = convert(pair.first, depth + 1);
      if (!key) return key;
      if (key->kind == ConfigNode::Kind::null) {
        key->kind = ConfigNode::Kind::scalar;  // `~:` and `: x`; is_string() says that it is none
      }
      if (key->kind != ConfigNode::Kind::scalar) return refuse(key->line, "a key must be a single word");
      auto value = convert(pair.second, depth + 1);
      if (!value) return value;
      if (value->kind == ConfigNode::Kind::null)
        value->line = key->line;  // the library says the next thing's
      if (!key->quoted && key->text == "<<") {
        if (merges)
          return refuse(key->line, "<<: the key stands twice", "merge a list: <<: [*first, *second]");
        merges = true;
        if (auto added = add_merged(std::move(*value), key->line, merged); !added) return fail(added.error());
        continue;
      }
      if (const auto [first, fresh] = seen.emplace(key->text, key->line); !fresh) {
        const std::string twice =
            fmt::format("{}: the key stands twice, first at {}", key->text, source_.place(first->second));
        if (!let_pass(key->line, twice + "; the last one counts")) return refuse(key->line, twice);
        std::erase_if(node.members, [&](const ConfigMember& member) { return member.key.text == key->text; });
      }
      node.members.push_back({.key = std::move(*key), .value = std::move(*value)});
    }
    // What stands in the map itself goes before what is merged, and the first of several merged maps before
    // the others. https://yaml.org/type/merge.html
    for (ConfigNode& map : merged) {
      for (ConfigMember& member : map.members) {
        if (seen.emplace(member.key.text, member.key.line).second) node.members.push_back(std::move(member));
      }
    }
    return node;
  }

  Result<> add_merged(ConfigNode value, int line, std::vector<ConfigNode>& merged) const {
    if (value.kind == ConfigNode::Kind::map) {
      merged.push_back(std::move(value));
      return {};
    }
    if (value.kind == ConfigNode::Kind::list &&
        std::all_of(value.items.begin(), value.items.end(),
                    [](const ConfigNode& item) { return item.kind == ConfigNode::Kind::map; })) {
      std::move(value.items.begin(), value.items.end(), std::back_inserter(merged));
      return {};
    }
    return refuse(line, "<<: only a map, or a list of maps, can be merged in");
  }

  // The library does not tell a literal block from a quoted string; the text at its mark does. Anchors and
  // tags may stand before the bar.
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
  std::size_t values_ = 0;
};

}  // namespace

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
  return is_string() ? fmt::format("the string '{}'", text) : text;
}

Result<ConfigNode> parse_config(const ConfigText& source, std::vector<std::string>* tolerated) {
  Converter converter(source, tolerated);
  if (source.text.find('\0') != std::string::npos || !is_utf8(source.text)) {
    return fail(Errc::invalid_config, source.file + ": not a text in UTF-8");
  }
  // yaml-cpp 0.7 takes an open quote for closed when a newline ends the file; without one it refuses it.
  const std::string text = source.text.substr(0, source.text.find_last_not_of(" \r\n") + 1);
  try {
    ConfigNode out;
    out.line = 1;  // of a text without a document
    bool found = false;
    for (const YAML::Node& document : load_documents(text)) {
      if (!document.IsDefined() || document.IsNull()) continue;
      if (found) {
        const int line = document.Mark().line + 1;
        if (converter.let_pass(line, "a second document begins here; it is not read")) break;
        return converter.refuse(line, "a second document begins here", "keep one document in a file");
      }
      found = true;
      auto converted = converter.convert(document);
      if (!converted) return converted;
      out = std::move(*converted);
    }
    return out;
  } catch (const YAML::Exception& error) {
    return converter.refuse(error.mark.line + 1, "not readable as YAML: " + error.msg);
  }
}

}  // namespace ferry
