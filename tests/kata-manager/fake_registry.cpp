// SPDX-License-Identifier: Apache-2.0
#include "tests/kata-manager/fake_registry.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kata-manager/content_hash.h"

namespace ferry::test {
namespace {

constexpr const char* kOci = "application/vnd.oci.image.manifest.v1+json";
constexpr const char* kEmpty = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

}  // namespace

std::string sha256_of_text(std::string_view text) {
  ContentHash hash;
  hash.add(text);
  return "sha256:" + hash.hex();
}

FakeRegistry::FakeRegistry()
    : server_([this](const HttpSeen& seen) {
        if (instead) {
          if (auto other = instead(seen)) return *other;
        }
        HttpAnswer truth = answer(seen);
        if (spoil) spoil(seen, truth);
        return truth;
      }) {}

std::string FakeRegistry::manifest(const std::string& text, const std::string& type, const std::string& tag) {
  const std::string digest = sha256_of_text(text);
  manifests_[tag] = {.type = type, .text = text};
  manifests_[digest] = manifests_[tag];
  return digest;
}

std::string FakeRegistry::image(const std::vector<FakeLayer>& layers, const std::string& tag) {
  using nlohmann::json;
  json list = json::array();
  for (const FakeLayer& layer : layers) {
    const std::string digest = sha256_of_text(layer.content);
    blobs_[digest] = layer.content;
    if (list.empty()) first_blob_ = digest;
    json entry = {{"mediaType", layer.media_type}, {"digest", digest}, {"size", layer.content.size()}};
    if (!layer.title.empty()) entry["annotations"]["org.opencontainers.image.title"] = layer.title;
    if (layer.unpack) entry["annotations"]["io.deis.oras.content.unpack"] = "true";
    list.push_back(std::move(entry));
  }
  const json document = {
      {"schemaVersion", 2},
      {"mediaType", kOci},
      {"artifactType", "application/vnd.example.kata-gpu"},
      {"config", {{"mediaType", "application/vnd.oci.empty.v1+json"}, {"digest", kEmpty}, {"size", 2}}},
      {"layers", std::move(list)}};
  return manifest(document.dump(), kOci, tag);
}

std::size_t FakeRegistry::asked(const std::string& part) const {
  const auto all = seen();
  return static_cast<std::size_t>(std::ranges::count_if(
      all, [&](const HttpSeen& one) { return one.path.find(part) != std::string::npos; }));
}

HttpAnswer FakeRegistry::answer(const HttpSeen& seen) const {
  const std::string manifests = "/v2/kata/gpu/manifests/";
  const std::string blobs = "/v2/kata/gpu/blobs/";
  if (seen.path.starts_with(manifests)) {
    const auto found = manifests_.find(seen.path.substr(manifests.size()));
    if (found != manifests_.end())
      return {.headers = {"Content-Type: " + found->second.type}, .body = found->second.text};
    return {.status = 404,
            .body = R"({"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]})"};
  }
  const auto found =
      seen.path.starts_with(blobs) ? blobs_.find(seen.path.substr(blobs.size())) : blobs_.end();
  if (found == blobs_.end()) return {.status = 404};
  const std::string range = seen.header("range");
  const std::string unit = "bytes=";
  if (range.empty()) return {.body = found->second};
  const std::size_t from = std::stoul(range.substr(unit.size()));
  const auto& all = found->second;
  if (from >= all.size()) return {.status = 416};
  return {.status = 206,
          .headers = {fmt::format("Content-Range: bytes {}-{}/{}", from, all.size() - 1, all.size())},
          .body = all.substr(from)};
}

}  // namespace ferry::test
