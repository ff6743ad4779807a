a = 1
b = "x\n${c}" // end
d {
  e = true
}
