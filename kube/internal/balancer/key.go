package balancer

import (
	"encoding/json"
	"strconv"
	"strings"
)

// specOfKey returns the smallest spec that identifies a service, for a deletion.
func specOfKey(key string) json.RawMessage {
	rest, mark, _ := strings.Cut(key, "/mark=")
	rest, protocol, _ := strings.Cut(rest, "/")
	colon := strings.LastIndex(rest, ":")
	host, ports := strings.Trim(rest[:colon], "[]"), rest[colon+1:]
	first, last, _ := strings.Cut(ports, "-")
	args := map[string]any{"externalIP": host, "protocol": protocol, "port": number(first)}
	if last != "" {
		args["portMax"] = number(last)
	}
	if mark != "" {
		args["block"] = number(mark)
	}
	data, _ := json.Marshal(map[string]any{"serviceArguments": args, "endpoints": []any{}})
	return data
}

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
