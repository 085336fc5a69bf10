// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "kube/field_filter.h"
#include "kube/object_watch.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace ferry;

constexpr std::size_t kMost = 1'000;

/// The kept parts of a stream's texts, up to one that is too large.
std::vector<std::string> kept_of(std::string_view stream, std::size_t piece,
                                 const kube::FieldChoice& choice) {
  std::vector<std::string> out;
  kube::FieldFilter filter(kube::in_a_watch(choice), kMost);
  for (std::size_t at = 0; at < stream.size(); at += piece) {
    std::string_view bytes = stream.substr(at, piece);
    while (!bytes.empty()) {
      const auto end = bytes.find('\n');
      if (!filter.take(bytes.substr(0, end))) return out;
      if (end == std::string_view::npos) break;
      if (!filter.is_fresh()) out.push_back(filter.finish());
      bytes.remove_prefix(end + 1);
    }
  }
  return out;
}

const kube::FieldChoice kSome{
    .mode = kube::FieldChoice::Mode::only,
    .fields = {{"metadata", {{"name"}, {"resourceVersion"}, {"owners", {{"kind"}}}}},
               {"status", {{.name = "runs", .presence = true}}}}};

void look_at(std::string_view line) {
  const kube::Asked asked{.verb = "watch", .kind = kube::kNodes, .subresource = {}, .object = "Node n1"};
  const auto event = kube::parse_watch_event(line, asked);
  if (!event)
    return fuzz::require(event.error().code == Errc::malformed_host, "what cannot be read is said to be");
  if (event->kind == kube::WatchEvent::Kind::error) {
    const auto error = kube::error_of(event->object, asked);
    fuzz::require(error.code.category() == kube::api_category(),
                  "an error of the server's is one of its kinds");
    fuzz::require(error.message.size() < 2'000, "what the server says is bounded");
    fuzz::require(error.message.find('\n') == std::string::npos, "and one line");
    return;
  }
  fuzz::require(!event->version.empty(), "an event has a version");
  fuzz::require(!kube::is_later(event->version, event->version), "no version is later than itself");
  fuzz::require(event->kind == kube::WatchEvent::Kind::bookmark || !event->key.empty(),
                "an object has a name");
}

}  // namespace

// The first byte says how large the pieces are in which the rest comes.
void ferry::fuzz::one_input(std::string_view text) {
  if (text.empty()) return;
  const auto piece = static_cast<std::size_t>(static_cast<unsigned char>(text.front())) + 1;
  text.remove_prefix(1);
  for (const kube::FieldChoice& choice : {kSome, kube::whole_object()}) {
    const auto kept = kept_of(text, piece, choice);
    require(kept == kept_of(text, text.size() + 1, choice), "the same is kept however the text is cut");
    for (const auto& line : kept) {
      require(line.size() <= kMost, "no more is kept than may be");
      require(line.find('\n') == std::string::npos, "a line is one");
      look_at(line);
    }
  }
}
