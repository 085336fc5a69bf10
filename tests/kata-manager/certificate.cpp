// SPDX-License-Identifier: Apache-2.0
#include "tests/kata-manager/certificate.h"

#include <stdexcept>

#include "common/process/spawn.h"
#include "tests/support/must.h"

namespace ferry::test {

void make_certificate(const ScratchDirectory& folder, const std::string& name) {
  const auto& root = folder.path();
  const int pid =
      must(spawn("openssl",
                 {"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                  "-nodes", "-days", "2", "-subj", "/CN=ferry test", "-addext", "subjectAltName=" + name,
                  "-keyout", (root / "key.pem").string(), "-out", (root / "cert.pem").string()},
                 {}));
  if (reap(pid) != 0) throw std::runtime_error("openssl makes no certificate");
}

}  // namespace ferry::test
