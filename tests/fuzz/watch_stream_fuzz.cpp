// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "kube/line_splitter.h"
#include "kube/watch_event.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace ferry;

constexpr std::size_t kLongest = 1'000;

struct Heard {
  std::vector<std::string> lines;
  bool whole = true;
};

Heard hear(std::string_view stream, std::size_t piece) {
  Heard heard;
  LineSplitter splitter(kLongest);
  for (std::size_t at = 0; at < stream.size() && heard.whole; at += piece)
    heard.whole = splitter.take(stream.substr(at, piece), [&](std::string_view line) {
      heard.lines.emplace_back(line);
      return true;
    });
  return heard;
}

void look_at(std::string_view line) {
  const Asked asked{.verb = "watch", .kind = kNodes, .subresource = {}, .object = "Node n1"};
  const auto event = parse_watch_event(line, asked);
  if (!event)
    return fuzz::require(event.error().code == Errc::malformed_host, "what cannot be read is said to be");
  if (event->kind == WatchEvent::Kind::error) {
    const auto error = error_of(event->object, asked);
    fuzz::require(error.code.category() == api_category(), "an error of the server's is one of its kinds");
    fuzz::require(error.message.size() < 2'000, "what the server says is bounded");
    fuzz::require(error.message.find('\n') == std::string::npos, "and one line");
    return;
  }
  fuzz::require(!event->version.empty(), "an event has a version");
  fuzz::require(!is_later(event->version, event->version), "no version is later than itself");
  fuzz::require(event->kind == WatchEvent::Kind::bookmark || !event->key.empty(), "an object has a name");
}

}  // namespace

// The first byte says how large the pieces are in which the rest comes.
void ferry::fuzz::one_input(std::string_view text) {
  if (text.empty()) return;
  const auto piece = static_cast<std::size_t>(static_cast<unsigned char>(text.front())) + 1;
  text.remove_prefix(1);
  const auto heard = hear(text, piece);
  const auto at_once = hear(text, text.size() + 1);
  require(heard.whole == at_once.whole, "what is too long is so however it is cut");
  require(heard.lines == at_once.lines, "lines are the same however they are cut");
  for (const auto& line : heard.lines) {
    require(!line.empty() && line.size() <= kLongest, "a line is no longer than it may be");
    require(line.find('\n') == std::string::npos, "a line is one");
    look_at(line);
  }
}
