// SPDX-License-Identifier: Apache-2.0
#include "tests/kata-manager/registry_store.h"

#include <nlohmann/json.hpp>

#include "kata-manager/artifacts/content_hash.h"

namespace ferry::test {

std::string sha256_of_text(std::string_view text) {
  kata::ContentHash hash;
  hash.add(text);
  return "sha256:" + hash.hex();
}

std::string push_image(RegistryStore& store, const std::vector<ImageLayer>& layers, const std::string& tag) {
  using nlohmann::json;
  constexpr const char* kOci = "application/vnd.oci.image.manifest.v1+json";
  constexpr const char* kEmpty = "{}";
  json list = json::array();
  for (const ImageLayer& layer : layers) {
    store.keep_blob(layer.content);
    json entry = {{"mediaType", layer.media_type},
                  {"digest", sha256_of_text(layer.content)},
                  {"size", layer.said_size.value_or(layer.content.size())}};
    if (!layer.title.empty()) entry["annotations"]["org.opencontainers.image.title"] = layer.title;
    if (layer.unpack) entry["annotations"]["io.deis.oras.content.unpack"] = "true";
    list.push_back(std::move(entry));
  }
  store.keep_blob(kEmpty);
  const json document = {
      {"schemaVersion", 2},
      {"mediaType", kOci},
      {"artifactType", "application/vnd.example.kata-gpu"},
      {"config",
       {{"mediaType", "application/vnd.oci.empty.v1+json"}, {"digest", sha256_of_text(kEmpty)}, {"size", 2}}},
      {"layers", std::move(list)}};
  const std::string text = document.dump();
  store.keep_manifest(tag, kOci, text);
  return sha256_of_text(text);
}

void MemoryStore::keep_manifest(const std::string& tag, const std::string& type, const std::string& text) {
  manifests_[tag] = {.type = type, .text = text};
  manifests_[sha256_of_text(text)] = manifests_[tag];
}

HttpAnswer MemoryStore::answer(const ReceivedRequest& seen) {
  if (seen.path == "/v2/") return {};
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
  return {.body = found->second};
}

}  // namespace ferry::test
