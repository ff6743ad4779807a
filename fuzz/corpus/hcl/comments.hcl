# a
/* b
*/ c = -1e3 # d
