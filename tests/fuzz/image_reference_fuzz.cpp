// SPDX-License-Identifier: Apache-2.0
// A reference that is taken can be shown and read again as the same one, and asks for something.
#include "kata-manager/artifacts/image_reference.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto reference = kata::ImageReference::parse(text);
  if (!reference) return require(!reference.error().message.empty(), "a refusal says why");
  const auto again = kata::ImageReference::parse(reference->text());
  require(again && *again == *reference, "what is shown can be read");
  require(!reference->manifest_key().empty() && !reference->repository.empty(), "something is asked for");
  require(reference->repository.find("..") == std::string::npos, "no repository climbs");
  (void)kata::is_loopback(reference->registry);
}
