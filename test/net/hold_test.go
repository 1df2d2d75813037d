package net_test

const holdArg = "hold-connections"

func holdMain([]string) int { return 0 }
