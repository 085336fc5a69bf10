// SPDX-License-Identifier: Apache-2.0
#include "tests/kata-manager/registry_front.h"

#include <algorithm>
#include <utility>

namespace ferry::test {

RegistryFront::RegistryFront()
    : server_([this](const ReceivedRequest& seen) {
        if (instead) {
          if (auto other = instead(seen)) return *other;
        }
        HttpAnswer truth = store_.answer(seen);
        if (spoil) spoil(seen, truth);
        return truth;
      }) {}

std::string RegistryFront::manifest(const std::string& text, const std::string& type,
                                    const std::string& tag) {
  store_.keep_manifest(tag, type, text);
  return sha256_of_text(text);
}

std::string RegistryFront::image(const std::vector<ImageLayer>& layers, const std::string& tag) {
  if (!layers.empty()) first_blob_ = sha256_of_text(layers.front().content);
  return push_image(store_, layers, tag);
}

std::size_t RegistryFront::asked(const std::string& part) const {
  const auto all = seen();
  return static_cast<std::size_t>(std::ranges::count_if(
      all, [&](const ReceivedRequest& one) { return one.path.find(part) != std::string::npos; }));
}

}  // namespace ferry::test
