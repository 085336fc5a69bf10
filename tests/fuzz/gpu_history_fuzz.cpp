// SPDX-License-Identifier: Apache-2.0
#include "host/sanitize/gpu_history.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  auto histories = host::read_gpu_histories(text);
  if (!histories) {
    require(histories.error().code == Errc::malformed_host, "a record that cannot be read is malformed");
    return require(histories.error().message.starts_with("/var/lib/ferry-hostd/gpus/history.json: "),
                   "a refusal says where");
  }
  const auto again = host::read_gpu_histories(host::gpu_histories_text(*histories));
  require(again && *again == *histories, "a record reads back as itself");
  for (const host::GpuHistory& gpu : again->gpus)
    require(histories->of(gpu.address, gpu.id).address == gpu.address, "each GPU is found by its address");
}
