module ferry.invalid/tests/kubevirt

go 1.26.6

require kubevirt.io/kubevirt v1.6.0
