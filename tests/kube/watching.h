// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kube/object_watch.h"
#include "tests/kube/kube_fixture.h"

namespace ferry::test {

/// A watch that has begun, and all that it has said.
class Watching {
 public:
  Watching(KubeFixture& kube, kube::Selection selection, kube::Random random)
      : watch_(kube.server, kube.clock, std::move(random), std::move(selection),
               {.changed = [this] { ++changes; },
                .trouble =
                    [this](const Error& error) {
                      troubles.push_back(error);
                      said.emplace_back("trouble");
                    },
                .well = [this] { said.emplace_back("well"); }}) {
    if (auto begun = watch_.begin(); !begun) throw std::runtime_error(begun.error().message);
  }
  const kube::ObjectWatch& operator*() const { return watch_; }
  const kube::ObjectWatch* operator->() const { return &watch_; }

  int changes = 0;
  std::vector<Error> troubles;
  std::vector<std::string> said;  ///< "trouble" and "well", in order

 private:
  kube::ObjectWatch watch_;
};

}  // namespace ferry::test
