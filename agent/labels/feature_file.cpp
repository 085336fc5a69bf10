// SPDX-License-Identifier: Apache-2.0
#include "agent/labels/feature_file.h"

#include <fmt/chrono.h>

namespace ferry::agent {

std::string feature_file_text(const Labels& labels, std::chrono::system_clock::time_point until) {
  std::string out =
      fmt::format("# What Ferry's agent knows of this node's GPUs.\n# +expiry-time={:%Y-%m-%dT%H:%M:%SZ}\n",
                  fmt::gmtime(std::chrono::system_clock::to_time_t(until)));
  for (const auto& [key, value] : labels) out += fmt::format("{}={}\n", key, value);
  return out;
}

Result<> write_feature_file(HostFs& host, const Labels& labels, std::chrono::system_clock::time_point now) {
  if (labels.empty()) return host.remove_file(kFeatureFile);
  return host.write_file(kFeatureFile, feature_file_text(labels, now + kFeatureFileLife));
}

}  // namespace ferry::agent
