// Package bpf holds the data path's programs and the Go side of bpf/abi.h. All but this file is generated, by
// bpf2go, from the C sources in the top folder bpf/.
package bpf

//go:generate sh -c "GOPACKAGE=bpf go tool bpf2go -tags linux -go-package bpf -target bpfel -cc clang-19 -type limit -type connection_key -type connection -type connection_flag -type service_key -type service -type algorithm -type persist_key -type persist_entry -type service_state -type endpoint -type endpoint_flag -type snat_pair -type snat_usage -type snat_source_key -type service_mode -type connection_trait -type endpoint_state -type endpoint_traffic -type link_flag -type service_kind -type service_flag -type range_key -type source_key -type vip -type egress_key -type egress_endpoint -type default_route -type fragment_key -type fragment -type drop_reason -type pass_reason -type sweep_report Tc ../../../bpf/tc.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/$(uname -m)-linux-gnu"
//go:generate sh -c "go tool bpf2go -tags linux -go-package bpf -target bpfel -cc clang-19 Sweep ../../../bpf/sweep.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/$(uname -m)-linux-gnu"
//go:generate sh -c "go tool bpf2go -tags linux -go-package bpf -target bpfel -cc clang-19 -type link_address Xdp ../../../bpf/xdp.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/$(uname -m)-linux-gnu"
//go:generate sh -c "go tool bpf2go -tags linux -go-package bpf -target bpfel -cc clang-19 Sock ../../../bpf/sock.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/$(uname -m)-linux-gnu"
//go:generate sh -c "go tool bpf2go -tags linux -go-package bpf -target bpfel -cc clang-19 -type decap_source -type decap_count Decap ../../../bpf/decap.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/$(uname -m)-linux-gnu"
