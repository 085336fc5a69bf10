// SPDX-License-Identifier: Apache-2.0
// A manifest or an index.
#include <algorithm>

#include "kata-manager/artifacts/artifact_version.h"
#include "kata-manager/artifacts/inner_path.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  constexpr kata::ArtifactLimits kLimits{.bytes = 1000, .layers = 8};
  const auto parsed = kata::parse_manifest(text, kLimits);
  if (!parsed) return require(!parsed.error().message.empty(), "a refusal says why");
  if (const auto* const index = std::get_if<kata::ImageIndex>(&*parsed))
    return (void)kata::choose_platform(*index, "amd64");
  const auto& manifest = std::get<kata::ArtifactManifest>(*parsed);
  require(manifest.size <= kLimits.bytes && manifest.layers.size() <= kLimits.layers, "limits hold");
  for (const kata::ArtifactLayer& layer : manifest.layers)
    require(layer.title.empty() || kata::inner_path(layer.title).has_value(), "a title stays inside");
}
