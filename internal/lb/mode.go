package lb

// Mode is how packets are translated on their way to an endpoint. The numbers are the REST
// contract's.
type Mode uint8

// The modes of the contract.
const (
	ModeDefault    Mode = 0
	ModeOneArm     Mode = 1
	ModeFullNAT    Mode = 2
	ModeDSR        Mode = 3
	ModeFullProxy  Mode = 4
	ModeHostOneArm Mode = 5
)

func modes() []choice[Mode] {
	return []choice[Mode]{
		{value: ModeDefault, word: "default", help: "destination NAT: keeps the client's address"},
		{value: ModeOneArm, word: "onearm", help: "replaces the client's address with the load balancer's"},
		{value: ModeFullNAT, word: "fullnat", help: "replaces the client's address with the VIP"},
		{value: ModeDSR, word: "dsr", help: "changes only the MAC address: endpoints also own the VIP and answer clients directly"},
		{value: ModeFullProxy, word: "fullproxy", help: "terminates connections, and opens others to the endpoints", instead: "let HAProxy or Envoy listen at the endpoints of a service of mode default"},
		{value: ModeHostOneArm, word: "hostonearm", help: "like onearm, for VIP 0.0.0.0 or ::, meaning every local address"},
	}
}

// TranslatesSource reports whether endpoints see an address of the load balancer instead of the
// client's.
func (m Mode) TranslatesSource() bool {
	return m == ModeOneArm || m == ModeFullNAT || m == ModeHostOneArm
}

// String returns the word of the contract.
func (m Mode) String() string { return wordOf("mode", m, modes()) }

// ParseMode parses the word or the number of the contract; "" means the default.
func ParseMode(s string) (Mode, error) {
	return parseWordOrNumber(FieldMode, s, modes())
}
