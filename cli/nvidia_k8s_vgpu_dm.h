// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ferry {

/// `nvidia-k8s-vgpu-dm` of NVIDIA's vGPU device manager v0.5.0, with its flags and environment. The node's
/// label nvidia.com/vgpu.config selects a profile of a file. It runs `ferry hostd` and `ferry-agent` side by
/// side until a signal ends them (0) or one of them ends by itself (1).
int nvidia_k8s_vgpu_dm(int argc, char** argv);

}  // namespace ferry
