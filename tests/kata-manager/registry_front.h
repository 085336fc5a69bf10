// SPDX-License-Identifier: Apache-2.0
// A registry with what a test puts into it, and a say for the test before each answer and after it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/kata-manager/registry_store.h"
#include "tests/support/http_standin.h"

namespace ferry::test {

class RegistryFront {
 public:
  RegistryFront();

  std::string address() const { return server_.address(); }
  /// "127.0.0.1:PORT/kata/gpu:TAG"
  std::string reference(const std::string& tag = "1") const { return address() + "/kata/gpu:" + tag; }
  /// Makes the image of that tag; its digest.
  std::string image(const std::vector<ImageLayer>& layers, const std::string& tag = "1");
  std::string manifest(const std::string& text, const std::string& type, const std::string& tag = "1");
  /// The first layer's digest of the last image.
  std::string first_blob() const { return first_blob_; }

  /// What it says instead of the truth, if it says something; set before the first question.
  std::function<std::optional<HttpAnswer>(const ReceivedRequest&)> instead;
  /// What the truth becomes on its way.
  std::function<void(const ReceivedRequest&, HttpAnswer&)> spoil;

  std::vector<ReceivedRequest> seen() const { return server_.seen(); }
  /// How often a path with that in it was asked for.
  std::size_t asked(const std::string& part) const;

 private:
  MemoryStore store_;
  std::string first_blob_;
  HttpStandin server_;
};

}  // namespace ferry::test
