// Package install installs the packages on real Debians: debootstraps that systemd boots in a
// namespace, with the data path in the kernel of this machine.
package install
